// Package kv measures the key-value store of examples/kv by the core workloads A, B and C of YCSB, beside Redis over a
// unix socket. Servers and clients are processes of their own; a client has one operation in progress at a time.
package kv
