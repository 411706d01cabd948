// Package endpoints compares the six categories of scalable endpoints: how fast the
// threads of a process send with each, and what that takes of the NIC.
package endpoints
