package main

func Example() {
	main()
	// Output: socket: hello peer: 6
}
