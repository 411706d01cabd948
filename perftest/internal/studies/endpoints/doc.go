// Package endpoints compares the six categories of scalable endpoints: the message rate of the
// threads of a process with each category, and its use of resources of the NIC.
package endpoints
