// Package ud is the transport over unreliable datagrams of InfiniBand verbs. Package udcore
// implements the protocol; this package posts and polls through verbs.
package ud
