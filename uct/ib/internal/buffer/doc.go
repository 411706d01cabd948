// Package buffer has the registered buffers of an iface over verbs: pools for sends, and receive queues that post
// their buffers again.
package buffer
