// Package memop is what transports that move bytes with the CPU share: copies that
// suit the length, gathering and scattering of IOVs, atomics on words of memory,
// and the packed form of a remote key.
//
// Nothing here allocates or blocks. Memory may be mapped and shared with other
// processes; the caller has checked ranges and alignment.
package memop
