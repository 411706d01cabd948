package base

import (
	"fmt"
	"time"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// Settle replaces 0 in a configuration, and auto for a size, by the default, and
// checks the range. Error: ErrInvalidParam, with name, value and range. A caller with several settings
// can combine the errors with cmp.Or.
func Settle[N int | config.MemSize | time.Duration](name string, value *N, def, least, most N) error {
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
