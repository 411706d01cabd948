package log

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
)

// Level says how much is logged: a message of a level is logged if the level of
// the process is that or a later one. The zero value is Warn.
type Level int8

const (
	Fatal Level = iota - 2 // the process, or all communication in it, cannot go on
	Error                  // something failed that the caller is not told otherwise
	Warn                   // something is wrong or will be slow
	Diag                   // what explains an unexpected choice
	Info                   // what was chosen: devices, lanes
	Debug                  // control path: objects made, connected, destroyed
	Trace                  // control messages
	Req                    // requests
	Data                   // each message
	Async                  // asynchronous events, timers
	Func                   // entries into the library
	Poll                   // each look into a queue
	levelEnd
)

// levels gives each Level its name, its label in a line and its place among
// slog's levels.
var levels = [levelEnd - Fatal]struct {
	name, label string
	slog        slog.Level
}{
	{"fatal", "FATAL", slog.LevelError + 4},
	{"error", "ERROR", slog.LevelError},
	{"warn", "WARN", slog.LevelWarn},
	{"diag", "DIAG", slog.LevelWarn - 2},
	{"info", "INFO", slog.LevelInfo},
	{"debug", "DEBUG", slog.LevelDebug},
	{"trace", "TRACE", slog.LevelDebug - 4},
	{"req", "REQ", slog.LevelDebug - 6},
	{"data", "DATA", slog.LevelDebug - 8},
	{"async", "ASYNC", slog.LevelDebug - 10},
	{"func", "FUNC", slog.LevelDebug - 12},
	{"poll", "POLL", slog.LevelDebug - 16},
}

var errLevel = errors.New("no such level")

// Level returns the slog level, so that a Level is a slog.Leveler.
func (l Level) Level() slog.Level { return levels[l.index()].slog }

// String returns the name.
func (l Level) String() string { return levels[l.index()].name }

// index is the place in levels; values outside the constants count as the nearest.
func (l Level) index() int { return int(min(max(l, Fatal), Poll) - Fatal) }

// Grammar describes the values in the environment.
func (Level) Grammar() string {
	names := make([]string, len(levels))
	for i := range levels {
		names[i] = levels[i].name
	}
	return "one of " + strings.Join(names, ", ")
}

// MarshalText is String.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads a name, in any case.
func (l *Level) UnmarshalText(text []byte) error {
	for i := range levels {
		if strings.EqualFold(levels[i].name, string(text)) {
			*l = Fatal + Level(i)
			return nil
		}
	}
	return errLevel
}

// fromSlog is the most important Level that l reaches.
func fromSlog(l slog.Level) Level {
	for i := range levels {
		if l >= levels[i].slog {
			return Fatal + Level(i)
		}
	}
	return Poll
}

// threshold is the level of the process.
var threshold atomic.Int32

// On says whether messages of level l are logged. It is one load; any goroutine
// may call it, also on the data path.
func On(l Level) bool { return int32(l) <= threshold.Load() }

// SetLevel sets the level of the process and returns the one before.
func SetLevel(l Level) Level { return Level(threshold.Swap(int32(l))) }
