package main

func Example() {
	main()
	// Output: sums: [10 1000 1048576]
}
