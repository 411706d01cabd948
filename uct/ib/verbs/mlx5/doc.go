// Package mlx5 is a verbs provider that drives the queues of mlx5 hardware, or of
// software that behaves like it: a prm.Hardware. The formats are those of package prm;
// here are the locks and doorbell registers, the memory of the queues, and the policies
// of libmlx5: which QP gets which micro-UAR, and how long a queue is.
package mlx5
