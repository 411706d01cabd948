package interop

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed testdata/side.c
var source []byte

// ErrNoUCX is the error if there is no program with UCX.
var ErrNoUCX = errors.New("skipped: no program with UCX")

// compiler builds the program with UCX.
const compiler = "gcc"

// Lacking returns what is missing to build the program with UCX; empty if nothing is known to be missing.
func Lacking(ctx context.Context) string {
	if _, err := exec.LookPath(compiler); err != nil {
		return compiler + " is not installed"
	}
	cmd := exec.CommandContext(ctx, compiler, "-E", "-x", "c", "-o", os.DevNull, "-")
	cmd.Stdin = strings.NewReader("#include <ucp/api/ucp.h>\n")
	if err := cmd.Run(); err != nil {
		return "UCX's headers are not installed; Debian has them in libucx-dev"
	}
	return ""
}

// Build builds the program with UCX in folder. The environment of gcc is used: CPATH for headers and LIBRARY_PATH for
// libraries that are not installed. It returns ErrNoUCX with the reason if the program cannot be built.
func Build(ctx context.Context, folder string) (binary string, err error) {
	if why := Lacking(ctx); why != "" {
		return "", fmt.Errorf("%w: %s", ErrNoUCX, why)
	}
	file := filepath.Join(folder, "side.c")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(folder, "side")
	// The links of the development package are not used; a library of another release of the system may need symbols of
	// that release.
	out, err := exec.CommandContext(ctx, compiler, "-O2", "-o", binary, file, "-l:libucp.so.0", "-l:libucs.so.0", "-Wl,--allow-shlib-undefined").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %w: %.300s", ErrNoUCX, err, out)
	}
	return binary, nil
}
