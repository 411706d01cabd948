package log

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
)

// Level is the severity of a message and the verbosity of the process: a message is logged if its level is at most
// that of the process, in the order of the constants. The zero value is Warn.
type Level int8

const (
	Fatal Level = iota - 2 // the process, or all its communication, cannot continue
	Error                  // a failure that no call returns
	Warn                   // something is wrong or will be slow
	Diag                   // reasons of unexpected choices
	Info                   // choices: devices, lanes
	Debug                  // control path: objects made, connected, destroyed
	Trace                  // control messages
	Req                    // requests
	Data                   // each message
	Async                  // asynchronous events, timers
	Func                   // entries into the library
	Poll                   // each poll of a queue
	levelEnd
)

// levels has the name of each Level, its label in a line, and the slog level that represents it.
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

// index returns the index of l in levels. Values outside the range of the constants get the index of the nearest one.
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

// UnmarshalText parses a name, in upper or lower case.
func (l *Level) UnmarshalText(text []byte) error {
	for i := range levels {
		if strings.EqualFold(levels[i].name, string(text)) {
			*l = Fatal + Level(i)
			return nil
		}
	}
	return errLevel
}

// fromSlog returns the most severe Level whose slog level is at most l.
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

// SetLevel sets the level of the process and returns the previous level.
func SetLevel(l Level) Level { return Level(threshold.Swap(int32(l))) }
