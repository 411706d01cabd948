// Package ud is the transport over unreliable datagrams of InfiniBand verbs: package
// udcore, which has the protocol, with the posts and polls of verbs.
package ud
