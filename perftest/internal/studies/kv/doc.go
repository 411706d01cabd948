// Package kv measures the key-value store of examples/kv with the core workloads A, B and C of YCSB, compared with
// Redis over a unix socket. Servers and clients are processes of their own; a client has one outstanding operation.
package kv
