// Package machine describes the computer, the runtime and the build that numbers
// come from.
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

// Describe returns what can be known without measuring.
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

// modelIn finds the name of the processor in the format of /proc/cpuinfo: x86 calls
// it "model name"; arm64 has numbers only, of which the implementer and the part
// name the core.
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

// gogc is the setting in force, which the runtime takes from the environment.
func gogc(env string) string {
	if env == "" {
		return "100"
	}
	return env
}

// gitTimeout bounds the look into a repository.
const gitTimeout = 2 * time.Second

// Commit names the source of this program: the stamp that the go command left. A program that go run
// or go test has just built has none: it is that of the current directory, if that is in the module of
// the program. A trailing "+" marks changes that are not committed. Any other program without a stamp is
// named by its own bytes: "build-" and 12 digits of their SHA-256.
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

// justBuilt reports whether the go command has built a program to run it at once: in a folder of its own.
func justBuilt(program string) bool { return strings.Contains(filepath.ToSlash(program), "/go-build") }

// inModule reports whether the current directory, or one above it, is the root of a module of that path.
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

// digest names a file by its contents.
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

// asked is the name of a program without a stamp.
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

// git runs git without locks that it can do without: it is killed when ctx ends, and a lock that is
// left keeps everybody from committing.
func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"--no-optional-locks"}, args...)...).Output()
	return string(bytes.TrimSpace(out)), err
}

// stamp reads the version control stamp of a build; "" without.
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

// IsTerminal reports whether f is a terminal on which a line can be drawn anew, which one of TERM
// dumb, such as that of an editor, is not.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && os.Getenv("TERM") != "dumb"
}
