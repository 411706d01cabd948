package main

func Example() {
	main()
	// Output: checksums agree: true
}
