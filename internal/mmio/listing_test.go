//go:build !race && !purego

package mmio

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// listing is the machine instructions of each function of this package, by its name, as go
// tool objdump prints them.
type listing map[string][]string

// disassemble reads the code of a binary with this package and symbols.
func disassemble(t *testing.T, binary string) listing {
	t.Helper()
	out, err := exec.Command("go", "tool", "objdump", "-s", `/mmio\.`, binary).CombinedOutput()
	require.NoError(t, err, "%s", out)
	code, function := listing{}, ""
	head := regexp.MustCompile(`^TEXT \S*/(mmio\.\S+)\(SB\)`)
	for _, line := range strings.Split(string(out), "\n") {
		if m := head.FindStringSubmatch(line); m != nil {
			function = m[1]
		}
		// file:line, address, bytes, instruction; padded with tabs
		cols := strings.FieldsFunc(line, func(r rune) bool { return r == '\t' })
		if len(cols) >= 4 {
			code[function] = append(code[function], strings.TrimSpace(cols[3]))
		}
	}
	return code
}

// of returns the instructions of a function; there must be some.
func (l listing) of(t *testing.T, function string) []string {
	t.Helper()
	require.NotEmpty(t, l[function], "no code for %s", function)
	return l[function]
}

// testBinary builds this package's tests for a machine, this one or another.
func testBinary(t *testing.T, arch string) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("no go command to build and disassemble with: %v", err)
	}
	if testing.Short() {
		t.Skip("builds a binary; not with -short")
	}
	if arch != runtime.GOARCH && os.Getenv("GUCX_TEST_CROSS") == "" {
		t.Skip("builds all for another machine; make cross does it")
	}
	binary := filepath.Join(t.TempDir(), "mmio.test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	if out, err := exec.Command("go", "tool", "objdump", "-s", "^none$", binary).CombinedOutput(); err != nil {
		t.Skipf("no disassembler: %v: %s", err, out)
	}
	return binary
}

// indexes returns where lines of code match the expression.
func indexes(code []string, expr string) []int {
	re := regexp.MustCompile(expr)
	var at []int
	for i, line := range code {
		if re.MatchString(line) {
			at = append(at, i)
		}
	}
	return at
}

// TestListing holds what the comments promise about the generated code: release
// stores are plain and keep their place, fences are the named instructions. No run can
// show that a fence is missing. With GUCX_TEST_CROSS=1 it reads the code for both
// machines, wherever it runs.
func TestListing(t *testing.T) {
	t.Run("amd64", func(t *testing.T) { checkListingAMD64(t, disassemble(t, testBinary(t, "amd64"))) })
	t.Run("arm64", func(t *testing.T) { checkListingARM64(t, disassemble(t, testBinary(t, "arm64"))) })
}

func checkListingAMD64(t *testing.T, all listing) {
	code := all.of(t, "mmio.publish")
	assert.Empty(t, indexes(code, `XCHG|LOCK|MFENCE`), "a locked store in:\n%s", strings.Join(code, "\n"))
	data := indexes(code, `^MOV\w+ \w+, 0(x4)?\(AX\)`)
	flag := indexes(code, `^MOVL \w+, 0x8\(AX\)`)
	after := indexes(code, `^MOVL \w+, 0xc\(AX\)`)
	if assert.Len(t, flag, 1, "the flag is stored once, by itself, in:\n%s", strings.Join(code, "\n")) {
		require.NotEmpty(t, data)
		assert.Less(t, data[len(data)-1], flag[0], "data before the flag")
		assert.Len(t, after, 1, "the store after the flag stays a store of its own")
	}

	code = all.of(t, "mmio.publishRecord")
	assert.Empty(t, indexes(code, `XCHG|LOCK|FENCE`), "amd64 needs no fence in:\n%s", strings.Join(code, "\n"))
	assert.Len(t, indexes(code, `^MOVL \w+, 0x8\(AX\)`), 1)

	code = all.of(t, "mmio.publishTwice")
	assert.Empty(t, indexes(code, `XCHG|LOCK|MFENCE`))
	first, second := indexes(code, `^MOVQ \w+, 0\(AX\)`), indexes(code, `^MOVQ \w+, 0x8\(AX\)`)
	if assert.Len(t, first, 1, "%q", code) && assert.Len(t, second, 1, "%q", code) {
		assert.Less(t, first[0], second[0])
	}

	assert.Equal(t, []string{"SFENCE", "RET"}, all.of(t, "mmio.ToDevice.abi0"))
	assert.Equal(t, []string{"SFENCE", "RET"}, all.of(t, "mmio.FlushWC.abi0"))
	assert.Equal(t, []string{"LFENCE", "RET"}, all.of(t, "mmio.FromDevice.abi0"))
	assert.Equal(t, []string{"PAUSE", "RET"}, all.of(t, "mmio.Pause.abi0"))
	assert.Len(t, indexes(all.of(t, "mmio.PrefetchW.abi0"), `^PREFETCHW 0\(AX\)`), 1)
	assert.Len(t, indexes(all.of(t, "mmio.Copy64.abi0"), `^MOVQ \w+, 0(x\w+)?\(DI\)`), 8)
	assert.Len(t, indexes(all.of(t, "mmio.Doorbell64.abi0"), `^MOVQ AX, 0\(DI\)`), 1)
}

func checkListingARM64(t *testing.T, all listing) {
	assert.Len(t, indexes(all.of(t, "mmio.publish"), `^STLRW`), 1)
	code := all.of(t, "mmio.publishRecord")
	fence, record := indexes(code, `ToDevice`), indexes(code, `^STLRW`)
	if assert.Len(t, fence, 1, "%q", code) && assert.Len(t, record, 1, "%q", code) {
		assert.Less(t, fence[0], record[0])
	}
	assert.Len(t, indexes(all.of(t, "mmio.publishTwice"), `^STLR`), 1)
	assert.Len(t, indexes(all.of(t, "mmio.ToDevice.abi0"), `^DMB \$2`), 1, "OSHST")
	assert.Len(t, indexes(all.of(t, "mmio.FlushWC.abi0"), `^DSB \$14`), 1, "ST")
	assert.Len(t, indexes(all.of(t, "mmio.FromDevice.abi0"), `^DMB \$1`), 1, "OSHLD")
	assert.Len(t, indexes(all.of(t, "mmio.PrefetchW.abi0"), `^PRFM`), 1)
	assert.Len(t, indexes(all.of(t, "mmio.Copy64.abi0"), `^STP`), 4)
}
