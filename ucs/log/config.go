package log

import (
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/gucx/gucx/ucs/config"
)

// Config is the part of the environment that package log reads: GUCX_LOG_LEVEL and
// GUCX_LOG_FILE. The zero value logs warnings and errors to standard error.
type Config struct {
	// Level is the level of the process.
	Level Level `env:"LOG_LEVEL" default:"warn" doc:"Least severe level that is logged."`
	// File is a file to which lines are appended. Empty means standard error.
	File string `env:"LOG_FILE" doc:"File to which log messages are appended; %p is replaced by the process id, %h by the host name. Empty: standard error."`
}

// Table is the configuration for config.FromEnv.
func (c *Config) Table() config.Table { return config.Table{Doc: "Log", Config: c} }

// Apply sets the level of the process. If c.File is not empty, it also sets the output. Close of the result restores
// standard error as the output and closes the file. Errors: those of os.OpenFile; after an error nothing has changed.
func Apply(c Config) (io.Closer, error) {
	if c.File == "" {
		SetLevel(c.Level)
		return io.NopCloser(nil), nil
	}
	f, err := os.OpenFile(c.path(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	Use(NewLineHandler(f))
	SetLevel(c.Level)
	return output{f}, nil
}

// path returns File with the values of its variables.
func (c Config) path() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return strings.NewReplacer("%p", strconv.Itoa(os.Getpid()), "%h", host, "%%", "%").Replace(c.File)
}

// output is a log file in use.
type output struct{ *os.File }

// Close restores standard error as the output and closes the file.
func (o output) Close() error {
	Use(NewLineHandler(os.Stderr))
	return o.File.Close()
}
