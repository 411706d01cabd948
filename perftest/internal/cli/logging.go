package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/ucs/log"
)

// logPrefix begins the variables of package log.
const logPrefix = config.Prefix + "LOG_"

// startLog sets level and file of the log from the environment, for all commands. Close the result.
func startLog(environ []string) (io.Closer, error) {
	var c log.Config
	mine := slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return !strings.HasPrefix(v, logPrefix) })
	if err := config.FromEnv(mine, c.Table()); err != nil {
		return nil, &usageError{err}
	}
	file, err := log.Apply(c)
	if err != nil {
		return nil, &usageError{fmt.Errorf("%sFILE: %w", logPrefix, err)}
	}
	return file, nil
}
