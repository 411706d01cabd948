package sm

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// explain returns Explain of an iface with a configuration.
func explain(t testing.TB, cfg Config) string {
	t.Helper()
	s := openStation(t, cfg)
	defer s.close(t)
	return s.iface.Explain()
}

// TestHugeTLB_Reached: all operations work on memory of huge pages.
func TestHugeTLB_Reached(t *testing.T) {
	cfg := Config{HugeTLB: config.Yes, ArenaSize: 16 << 20}
	md, err := New(cfg).OpenMD(Name)
	if errors.Is(err, memfd.ErrNoHugePages) {
		t.Skipf("the test needs vm.nr_hugepages of 16 or more: %v", err)
	}
	require.NoError(t, err)
	require.NoError(t, md.Close())
	assert.Contains(t, explain(t, cfg), "allocated memory: huge pages;")
	w := openTwo(t, cfg)
	assert.Equal(t, "huge pages", w.b.md.(*domain).pages)
	w.checkPuts(w.b.mem, w.key)
	w.checkGets(w.b.mem, w.key, false)
	w.checkAtomics(w.b.mem, w.key)

	c := start(t, roleEcho, w.a, "") // a process that maps them
	e := w.a.connect(t, c.exchangedInfo)
	require.NoError(t, e.Close())
	c.End(t)
}

func TestHugeTLB_OtherwiseAsConfigured(t *testing.T) {
	const tooMuch = 1 << 40
	needArena(t, tooMuch)
	_, err := New(Config{HugeTLB: config.Yes, ArenaSize: tooMuch}).OpenMD(Name)
	assert.ErrorIs(t, err, memfd.ErrNoHugePages)
	_, err = New(Config{HugeTLB: config.Yes}).OpenMD(Name)
	assert.ErrorIs(t, err, uct.ErrInvalidParam, "what to reserve is not said")
	assert.Contains(t, explain(t, Config{HugeTLB: config.Try, ArenaSize: tooMuch}), "not enough free huge pages")
	assert.Contains(t, explain(t, Config{}), "allocated memory: base pages;")
}

func TestNUMANode(t *testing.T) {
	for _, tc := range []struct {
		node string
		want string
		err  error
	}{
		{"", "base pages;", nil},
		{"auto", "base pages;", nil},
		{"0", "base pages of NUMA node 0;", nil},
		{"1023", "", uct.ErrInvalidParam},
		{"2000", "", uct.ErrInvalidParam},
		{"-1", "", uct.ErrInvalidParam},
		{"near", "", uct.ErrInvalidParam},
	} {
		t.Run(tc.node, func(t *testing.T) {
			cfg := Config{NUMANode: tc.node, ArenaSize: testArena}
			md, err := New(cfg).OpenMD(Name)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			if tc.err != nil {
				require.ErrorIs(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.NoError(t, md.Close())
			assert.Contains(t, explain(t, cfg), tc.want)
		})
	}
}

func TestArena_Auto(t *testing.T) {
	const none, gib = unix.RLIM_INFINITY, 1 << 30
	for want, in := range map[int][3]uint64{
		24 * gib: {24 * gib, none, none},
		gib:      {24 * gib, 8 * gib, none},
		2 * gib:  {24 * gib, 32 * gib, 2 * gib},
		minArena: {24 * gib, 1, none},
		maxArena: {1 << 50, none, none},
	} {
		assert.Equal(t, want, autoArena(in[0], in[1], in[2]), "%v", in)
	}
}

// TestArena_LimitedAddressSpace: a domain opens with less address space than the
// machine has memory.
func TestArena_LimitedAddressSpace(t *testing.T) {
	const room = 2 << 30
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_AS, &was))
	low, err := addressSpace()
	require.NoError(t, err)
	low += room
	if low > was.Cur {
		t.Skipf("the address space is limited already, to %d bytes", was.Cur)
	}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: low, Max: was.Max}))
	md, err := New(Config{}).OpenMD(Name)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_AS, &was))
	require.NoError(t, err)
	require.NoError(t, md.Close())
}
