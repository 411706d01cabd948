package main

func Example() {
	main()
	// Output: any: 4 told: 4 canceled: true
}
