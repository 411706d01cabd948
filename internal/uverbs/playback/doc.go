// Package playback records the calls of a program to a device of the kernel, and replies to the same calls from the
// record, for tests on machines without the device.
//
// A record is text, one call a line, with all data in hexadecimal:
//
//	open
//	ioctl 3.0 driver 14 errno 0 | object 0 0 7 | in 1 c8000000 | out 6 ff000000
//	write errno 0 1c00...
//	map errno 0 len 8192 header 0700...
//
// Player replies to the calls in the order of the record. A call whose method, attributes or data differ from the record
// returns an error. Addresses in the memory of the process and file descriptors may differ.
package playback
