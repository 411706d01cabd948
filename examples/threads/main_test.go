package main

func Example() {
	main()
	// Output: auto: 4 threads wrote [231 231 231 231]
}
