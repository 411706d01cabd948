// Package machine describes the computer, the runtime and the build of a measurement.
package machine

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

// Describe returns everything that needs no measurement.
func Describe() result.Machine {
	return result.Machine{
		CPU:        cpuModel(),
		Cores:      runtime.NumCPU(),
		Kernel:     kernel(),
		Arch:       runtime.GOARCH,
		Go:         runtime.Version(),
		GOMAXPROCS: runtime.GOMAXPROCS(0),
		GOGC:       gogc(os.Getenv("GOGC")),
	}
}

const unknown = "unknown"

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return unknown
	}
	defer f.Close()
	return modelIn(f)
}

// modelIn returns the name of the CPU from text in the format of /proc/cpuinfo: "model name" on x86; arm64 has only
// numbers, of which implementer and part identify the core.
func modelIn(r io.Reader) string {
	fields := map[string]string{}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), ":")
		if name = strings.TrimSpace(name); ok && fields[name] == "" {
			fields[name] = strings.TrimSpace(value)
		}
	}
	if m := fields["model name"]; m != "" {
		return m
	}
	if part := fields["CPU part"]; part != "" {
		return "implementer " + fields["CPU implementer"] + " part " + part
	}
	return unknown
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return unknown
	}
	return unix.ByteSliceToString(u.Release[:])
}

// gogc returns the current setting, which the runtime reads from the environment.
func gogc(env string) string {
	if env == "" {
		return "100"
	}
	return env
}

// gitTimeout is the maximum time of a git command.
const gitTimeout = 2 * time.Second

// Commit returns the source of this program: the stamp of the go command. A program that go run or go test has just
// built has no stamp: for it Commit returns the commit of the current directory, if that is in the module of the
// program. A trailing "+" means uncommitted changes. Any other program without a stamp gets "build-" and 12 digits of
// the SHA-256 of its file.
func Commit(ctx context.Context) string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		if c := stamp(info.Settings); c != "" {
			return c
		}
	}
	asked.mu.Lock()
	defer asked.mu.Unlock()
	if asked.commit != "" {
		return asked.commit
	}
	program, err := os.Executable()
	asked.commit = unknown
	switch {
	case err != nil:
	case ok && justBuilt(program) && inModule(info.Main.Path):
		asked.commit = gitCommit(ctx)
	default:
		asked.commit = digest(program)
	}
	return asked.commit
}

// justBuilt reports whether go run or go test has built the program, in a temporary folder.
func justBuilt(program string) bool { return strings.Contains(filepath.ToSlash(program), "/go-build") }

// inModule reports whether the current directory, or one above it, is the root of the module with this path.
func inModule(module string) bool {
	dir, err := os.Getwd()
	for err == nil {
		text, failed := os.ReadFile(filepath.Join(dir, "go.mod"))
		if failed == nil {
			first, _, _ := strings.Cut(string(text), "\n")
			return strings.TrimSpace(first) == "module "+module
		}
		above := filepath.Dir(dir)
		if above == dir {
			break
		}
		dir = above
	}
	return false
}

// digest returns "build-" and the start of the SHA-256 of a file.
func digest(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return unknown
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return unknown
	}
	return fmt.Sprintf("build-%x", h.Sum(nil)[:6])
}

// asked returns the name of a program without a stamp.
var asked struct {
	mu     sync.Mutex
	commit string
}

func gitCommit(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	head, err := git(ctx, "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return unknown
	}
	if changes, err := git(ctx, "status", "--porcelain", "--untracked-files=no"); err != nil || changes != "" {
		head += "+"
	}
	return head
}

// git runs git without optional locks: it may be killed at the end of ctx, and a lock file that remains would prevent
// later commits.
func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"--no-optional-locks"}, args...)...).Output()
	return string(bytes.TrimSpace(out)), err
}

// stamp returns the version control stamp of a build; "" if there is none.
func stamp(settings []debug.BuildSetting) string {
	values := map[string]string{}
	for _, s := range settings {
		values[s.Key] = s.Value
	}
	rev := values["vcs.revision"]
	if rev == "" {
		return ""
	}
	rev = rev[:min(len(rev), 12)]
	if values["vcs.modified"] == "true" {
		rev += "+"
	}
	return rev
}

// IsTerminal reports whether f is a terminal that can overwrite a line. One with TERM dumb, such as that of an editor,
// cannot.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && os.Getenv("TERM") != "dumb"
}
