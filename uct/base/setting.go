package base

import (
	"fmt"
	"time"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// SetDefault sets *value to def if it is 0, or auto for a size, and checks that it is from least to most. Error:
// ErrInvalidParam, with name, value and range. A caller with several settings can combine the errors with cmp.Or.
func SetDefault[N int | config.MemSize | time.Duration](name string, value *N, def, least, most N) error {
	if size, ok := any(value).(*config.MemSize); ok && *size == config.MemAuto {
		*size = 0
	}
	if *value == 0 {
		*value = def
	}
	if *value < least || *value > most {
		return fmt.Errorf("%w: %s %v not in [%v, %v]", uct.ErrInvalidParam, name, *value, least, most)
	}
	return nil
}
