// Package provider is a verbs provider that drives the queues of a prm.Hardware: mlx5 hardware, or
// software that behaves like it. The formats are in package prm, the
// settings in package mlx5. This package has the locks and doorbell registers, the memory of the
// queues, and the policies of libmlx5: which QP gets which micro-UAR, and how many entries a queue has.
// The Raw types expose the queues to package dv and to the layer averbs of perftest, which write them directly.
package provider
