// Package hwcheck tests a verbs device through loopback: it creates each kind of object, posts each kind of work
// request in each way that there is to reach the device, and compares every byte of the memory that may have changed.
// It is for adapters on which this project has not run, and prints a report to send back.
//
//	Steps      what is tested, in order
//	Run        runs the steps, and continues after a failure
//	Report     the lines
package hwcheck
