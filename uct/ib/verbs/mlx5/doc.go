// Package mlx5 has the settings of mlx5 queues, with the names and limits of libmlx5: how many doorbell registers
// (micro-UARs) a device context has, which QP gets which, and when posts use BlueFlame.
package mlx5
