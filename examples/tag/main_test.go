package main

func Example() {
	main()
	// Output: numbers: 5 texts: [5 50005 100005]
}
