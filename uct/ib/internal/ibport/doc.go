// Package ibport is the port of an iface over verbs: its address, which peers it reaches, its costs, and the codes of
// its timers.
package ibport
