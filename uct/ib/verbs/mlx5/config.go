package mlx5

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gucx/gucx/internal/mlx5/prm"
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
	// domains share, MLX5_TOTAL_UUARS: at most 512, an odd number becomes the next
	// even one; 0 means 16.
	TotalUUARs int
	// LowLatUUARs is how many of them serve one QP only, without a lock,
	// MLX5_NUM_LOW_LAT_UUARS. At least TotalUUARs-12, at most TotalUUARs-1; what
	// is outside becomes the limit. 0 means 4, NoLowLatUUARs none.
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

// NoLowLatUUARs as Config.LowLatUUARs is what MLX5_NUM_LOW_LAT_UUARS=0 says.
const NoLowLatUUARs = -1

const (
	defaultUUARs  = 16
	defaultLowLat = 4
	maxUUARs      = 512
	// maxMedUUARs bounds the shared class: libmlx5 turns what is beyond it into
	// low-latency ones.
	maxMedUUARs = 12
)

// WithDefaults returns c with the defaults in place of zeros, and with the limits applied. ErrInvalidParam for a
// number out of range or an unknown policy.
func (c Config) WithDefaults() (Config, error) {
	if c.TotalUUARs == 0 {
		c.TotalUUARs = defaultUUARs
	}
	if c.LowLatUUARs == 0 {
		c.LowLatUUARs = defaultLowLat
	}
	if c.TotalUUARs < 1 || c.TotalUUARs > maxUUARs {
		return c, fmt.Errorf("total uUARs %d: want a number in [1, %d]: %w", c.TotalUUARs, maxUUARs, ucs.ErrInvalidParam)
	}
	c.TotalUUARs += c.TotalUUARs % prm.UUARsPerPage
	if c.LowLatUUARs < NoLowLatUUARs {
		return c, fmt.Errorf("low-latency uUARs %d: negative: %w", c.LowLatUUARs, ucs.ErrInvalidParam)
	}
	if c.UARPolicy > UARLazy {
		return c, fmt.Errorf("UAR policy %d: unknown: %w", c.UARPolicy, ucs.ErrInvalidParam)
	}
	c.LowLatUUARs = min(max(c.LowLatUUARs, 0, c.TotalUUARs-maxMedUUARs), c.TotalUUARs-1)
	return c, nil
}

// ConfigFromEnv reads libmlx5's variables by lookup, which is os.LookupEnv or a
// test's, and takes their values as libmlx5 does: numbers as C's atoi, and a switch is
// on, or off, for one value only. ErrInvalidParam for a number that libmlx5 refuses; it
// names the variable.
func ConfigFromEnv(lookup func(name string) (string, bool)) (Config, error) {
	var c Config
	if s, ok := lookup("MLX5_TOTAL_UUARS"); ok {
		if c.TotalUUARs = atoi(s); c.TotalUUARs < 1 {
			return Config{}, fmt.Errorf("MLX5_TOTAL_UUARS=%q: want a positive number: %w", s, ucs.ErrInvalidParam)
		}
	}
	if s, ok := lookup("MLX5_NUM_LOW_LAT_UUARS"); ok {
		switch c.LowLatUUARs = atoi(s); {
		case c.LowLatUUARs < 0:
			return Config{}, fmt.Errorf("MLX5_NUM_LOW_LAT_UUARS=%q: negative: %w", s, ucs.ErrInvalidParam)
		case c.LowLatUUARs == 0:
			c.LowLatUUARs = NoLowLatUUARs
		}
	}
	is := func(name, value string) bool { s, ok := lookup(name); return ok && s == value }
	_, set := lookup("MLX5_SHUT_UP_BF")
	c.ShutUpBF = set && !is("MLX5_SHUT_UP_BF", "0")
	c.InlineBF = is("MLX5_POST_SEND_PREFER_BF", "0")
	c.SingleThreaded = is("MLX5_SINGLE_THREADED", "1")
	return c, nil
}

// atoi is the number that s begins with, after spaces; 0 if there is none, and the
// nearest int32 if it is beyond.
func atoi(s string) int {
	s = strings.TrimLeft(s, " \t\n\v\f\r")
	end := 0
	for end < len(s) && (s[end] >= '0' && s[end] <= '9' || end == 0 && (s[0] == '-' || s[0] == '+')) {
		end++
	}
	n, _ := strconv.ParseInt(s[:end], 10, 32) // 0, or the limit that it is beyond
	return int(n)
}
