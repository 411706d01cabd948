package mlx5

import (
	"fmt"
	"strconv"

	"github.com/gucx/gucx/ucs"
)

// UARPolicy is how queue pairs outside thread domains get their micro-UARs.
type UARPolicy uint8

// Policies.
const (
	// UARStatic maps all UAR pages when the device is opened and divides them in
	// classes, as kernels before 5.7 and rdma-core before 29 do.
	UARStatic UARPolicy = iota
	// UARLazy allocates pages when queue pairs need them, as later ones do.
	UARLazy
)

// Config tunes the driver; names in the environment are those of libmlx5. The
// zero value is ready to use.
type Config struct {
	// UARPolicy is UARStatic or UARLazy.
	UARPolicy UARPolicy
	// TotalUUARs is the number of micro-UARs that queue pairs outside thread
	// domains share, MLX5_TOTAL_UUARS: even, at most 512; 0 means 16.
	TotalUUARs int
	// LowLatUUARs is how many of them serve one QP only, without a lock,
	// MLX5_NUM_LOW_LAT_UUARS. At least TotalUUARs-12, at most TotalUUARs-1; what
	// is outside becomes the limit. 0 means 4.
	LowLatUUARs int
	// ShutUpBF turns BlueFlame off: doorbells only, MLX5_SHUT_UP_BF.
	ShutUpBF bool
	// InlineBF uses BlueFlame for inline work requests only:
	// MLX5_POST_SEND_PREFER_BF=0.
	InlineBF bool
	// SingleThreaded removes all locks: one goroutine at a time uses the context,
	// MLX5_SINGLE_THREADED.
	SingleThreaded bool
}

const (
	defaultUUARs  = 16
	defaultLowLat = 4
	maxUUARs      = 512
	// maxMedUUARs bounds the shared class: libmlx5 turns what is beyond it into
	// low-latency ones.
	maxMedUUARs = 12
)

func (c Config) withDefaults() (Config, error) {
	if c.TotalUUARs == 0 {
		c.TotalUUARs = defaultUUARs
	}
	if c.LowLatUUARs == 0 {
		c.LowLatUUARs = defaultLowLat
	}
	if c.TotalUUARs < 2 || c.TotalUUARs > maxUUARs || c.TotalUUARs%UUARsPerPage != 0 {
		return c, fmt.Errorf("total uUARs %d: want an even number in [2, %d]: %w", c.TotalUUARs, maxUUARs, ucs.ErrInvalidParam)
	}
	if c.LowLatUUARs < 0 {
		return c, fmt.Errorf("low-latency uUARs %d: negative: %w", c.LowLatUUARs, ucs.ErrInvalidParam)
	}
	if c.UARPolicy > UARLazy {
		return c, fmt.Errorf("UAR policy %d: unknown: %w", c.UARPolicy, ucs.ErrInvalidParam)
	}
	c.LowLatUUARs = min(max(c.LowLatUUARs, c.TotalUUARs-maxMedUUARs), c.TotalUUARs-1)
	return c, nil
}

// ConfigFromEnv reads libmlx5's variables by lookup, which is os.LookupEnv or a
// test's. The error names the variable.
func ConfigFromEnv(lookup func(name string) (string, bool)) (Config, error) {
	var c Config
	for name, dst := range map[string]*int{"MLX5_TOTAL_UUARS": &c.TotalUUARs, "MLX5_NUM_LOW_LAT_UUARS": &c.LowLatUUARs} {
		s, ok := lookup(name)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return Config{}, fmt.Errorf("%s=%q: want a positive number: %w", name, s, ucs.ErrInvalidParam)
		}
		*dst = n
	}
	_, c.ShutUpBF = lookup("MLX5_SHUT_UP_BF")
	if s, ok := lookup("MLX5_POST_SEND_PREFER_BF"); ok {
		c.InlineBF = s == "0"
	}
	if s, ok := lookup("MLX5_SINGLE_THREADED"); ok {
		c.SingleThreaded = s == "1"
	}
	return c, nil
}
