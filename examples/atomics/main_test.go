package main

func Example() {
	main()
	// Output: 300 tickets; all know who leads: true
}
