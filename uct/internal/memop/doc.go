// Package memop contains functions of transports that move bytes with the CPU: copies whose method
// depends on the length, gather and scatter of IOVs, atomics on memory, and the packed format of a
// remote key.
//
// Nothing here allocates or blocks. Memory may be mapped and shared with other processes. The
// caller must have checked ranges and alignment.
package memop
