package main

func Example() {
	main()
	// Output: row 7: 70 71 72 73
}
