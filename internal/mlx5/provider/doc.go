// Package provider is a verbs provider that drives the queues of mlx5 hardware, or of
// software that behaves like it: a prm.Hardware. The formats are those of package prm, the
// settings those of package mlx5. Here are the locks and doorbell registers, the memory of the
// queues, and the policies of libmlx5: which QP gets which micro-UAR, and how many entries a queue has.
// The Raw types expose the queues to package dv and to the layer averbs of perftest, which write them directly.
package provider
