package xrcdomain

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

// domainFile returns the file of a new domain.
func domainFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "domain")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	return path
}

func join(t testing.TB, path string, n int) *Domain {
	t.Helper()
	d, err := joinPath(path, n)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// isFirst reports whether a GID is that of member 1.
func isFirst(gid [16]byte) bool { return gid == gidFor(1) }

func addSRQ(t testing.TB, d *Domain) uint32 {
	t.Helper()
	n, err := d.AddSRQ(7)
	require.NoError(t, err)
	require.Less(t, n, uint32(1<<24))
	require.Equal(t, uint32(7), n%maxSlots)
	return n
}

func addQP(t testing.TB, d *Domain) uint32 {
	t.Helper()
	n, err := d.AddQP()
	require.NoError(t, err)
	require.Equal(t, uint32(NumberBit), n&NumberBit)
	require.Less(t, n, uint32(1<<24))
	return n
}

func TestSRQ_FoundByAll(t *testing.T) {
	path := domainFile(t)
	a, b := join(t, path, 1), join(t, path, 2)
	v, err := Open(a.Key())
	require.NoError(t, err)
	defer func() { require.NoError(t, v.Close()) }()
	sa, sb := addSRQ(t, a), addSRQ(t, b)
	require.NotEqual(t, sa, sb)
	for _, in := range []*View{&a.View, &b.View, v} {
		m, ok := in.SRQOwner(sa)
		assert.True(t, ok)
		assert.Equal(t, Member{gidFor(1), os.Getpid(), 1}, m)
		m, ok = in.SRQOwner(sb)
		assert.True(t, ok)
		assert.Equal(t, gidFor(2), m.GID)
	}
	require.ErrorIs(t, a.RemoveSRQ(sb), ucs.ErrInvalidParam)
	require.NoError(t, b.RemoveSRQ(sb))
	require.ErrorIs(t, b.RemoveSRQ(sb), ucs.ErrInvalidParam)
	_, ok := v.SRQOwner(sb)
	assert.False(t, ok)
	assert.False(t, v.SRQDied(sb), "the number was released")
	require.NoError(t, a.Close())
	assert.False(t, v.SRQDied(sa), "the member has left")
}

func TestSRQ_ProcessIsKilled(t *testing.T) {
	path := domainFile(t)
	a, c := join(t, path, 1), startMember(t, path)
	n := c.number(t, "srq")
	m, ok := a.SRQOwner(n)
	require.True(t, ok)
	require.Equal(t, Member{gidFor(1000), c.Process.Pid, 1}, m)
	assert.False(t, a.SRQDied(n))
	c.Kill(t)
	_, ok = a.SRQOwner(n)
	assert.False(t, ok)
	assert.True(t, a.SRQDied(n))
	again := startMember(t, path) // gets the same place
	_, ok = a.SRQOwner(n)
	assert.False(t, ok, "the next member at the place must not get the SRQ of the dead one")
	assert.True(t, a.SRQDied(n), "also after that member has cleared the place")
	assert.Equal(t, uint32(2), a.Joins(1))
	assert.NotEqual(t, n, again.number(t, "srq"))
}

// TestDirectory_OutlivesCreator: the creator is killed, and another member joins later.
func TestDirectory_OutlivesCreator(t *testing.T) {
	path := domainFile(t)
	first := startMember(t, path)
	a := join(t, path, 1)
	n := addSRQ(t, a)
	first.Kill(t)
	b := join(t, path, 2)
	_, ok := b.SRQOwner(n)
	assert.True(t, ok)
}

func TestDirectory_RemovedWithLastMember(t *testing.T) {
	path := domainFile(t)
	c := startMember(t, path)
	a := join(t, path, 1)
	key, n := a.Key(), c.number(t, "srq")
	require.NoError(t, a.Close())
	c.Kill(t)
	_, err := Open(key)
	require.ErrorIs(t, err, ucs.ErrUnreachable)
	b := join(t, path, 2)
	_, ok := b.SRQOwner(n)
	assert.False(t, ok)
}

func TestQP_ExistsWhileReferred(t *testing.T) {
	for name, end := range map[string]func(*child, testing.TB){
		"killed": (*child).Kill, "left": (*child).End,
	} {
		t.Run(name, func(t *testing.T) {
			path := domainFile(t)
			a, c := join(t, path, 1), startMember(t, path)
			n, other := c.number(t, "qp 77"), c.number(t, "qp 88")
			require.NoError(t, a.OpenQP(n))
			assert.True(t, a.Referred(n, isFirst), "the child refers to it")
			end(c, t)
			assert.True(t, a.Referred(n, noneDead), "this member refers to it")
			assert.False(t, a.Referred(n, isFirst), "no other member refers to it")
			assert.Equal(t, uint64(77), a.Area(n)[0].Load())
			assert.False(t, a.Referred(other, noneDead), "no process refers to it any more")
			require.ErrorIs(t, a.OpenQP(other), ucs.ErrInvalidParam)
			gone, err := a.CloseQP(n)
			require.NoError(t, err)
			assert.True(t, gone)
			assert.False(t, a.Referred(n, noneDead))
			assert.Zero(t, a.Area(n)[0].Load())
		})
	}
}

// TestQP_RemovedByLastLivingMember: a member that leaves without closing its QPs removes those to which only
// dead members refer besides it.
func TestQP_RemovedByLastLivingMember(t *testing.T) {
	path := domainFile(t)
	a, b, c := join(t, path, 1), join(t, path, 2), startMember(t, path)
	n := c.number(t, "qp 77")
	require.NoError(t, b.OpenQP(n))
	c.Kill(t)
	require.Equal(t, uint64(77), a.Area(n)[0].Load())
	require.NoError(t, b.Close())
	assert.Zero(t, a.Area(n)[0].Load())
}

func TestQP_SecondOpens(t *testing.T) {
	path := domainFile(t)
	a, c := join(t, path, 1), startMember(t, path)
	n := addQP(t, a)
	a.Area(n)[0].Store(99)
	v, err := Open(a.Key())
	require.NoError(t, err)
	defer func() { require.NoError(t, v.Close()) }()
	assert.Equal(t, uint64(99), v.Area(n)[0].Load())
	require.Equal(t, "ok", c.do(t, "open %d", n))
	gone, err := a.CloseQP(n)
	require.NoError(t, err)
	require.False(t, gone)
	require.True(t, a.Referred(n, noneDead))
	require.Equal(t, "true", c.do(t, "close %d", n))
	require.False(t, a.Referred(n, noneDead))
	require.NotEqual(t, n, addQP(t, a), "a number must not be reused at once")
}

// TestQP_NumberIsReused: Serial distinguishes two successive targets with the same number.
func TestQP_NumberIsReused(t *testing.T) {
	a := join(t, domainFile(t), 1)
	first := addQP(t, a)
	serial := a.Serial(first)
	n := first
	for again := false; !again; again = n == first {
		_, err := a.CloseQP(n)
		require.NoError(t, err)
		n = addQP(t, a)
		require.NotEqual(t, serial, a.Serial(n))
	}
	assert.Equal(t, serial+qpSerials, a.Serial(n))
}

// TestCall: members that refer to a target are called, also if others are dead or stopped.
func TestCall(t *testing.T) {
	path := domainFile(t)
	c, a := startMember(t, path), join(t, path, 1)
	n := c.number(t, "qp 1")
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	calls := make(chan struct{}) // only Call connects to the member that joined last
	b, err := Join(int(f.Fd()), unix.O_CREAT, gidFor(2), func() { calls <- struct{}{} })
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	require.Equal(t, []int{0}, b.Others(n), "the creator")
	require.NoError(t, a.OpenQP(n))
	require.NoError(t, b.OpenQP(n))
	require.Equal(t, []int{0, 2}, a.Others(n))
	require.Equal(t, []int{0, 1}, b.Others(n))
	c.Stop(t)
	Call(a.Key(), a.Others(n))
	<-calls
	c.Kill(t)
	Call(a.Key(), a.Others(n))
	<-calls
}

// TestQP_Numbers: each number has a separate entry, wherever the numbers of the domain start.
func TestQP_Numbers(t *testing.T) {
	a := join(t, domainFile(t), 1)
	seen := map[*Area]bool{}
	for range 100 {
		n := addQP(t, a)
		require.True(t, a.Referred(n, noneDead))
		require.False(t, a.Referred(n^1<<15, noneDead), "another serial")
		require.False(t, seen[a.Area(n)])
		seen[a.Area(n)] = true
	}
	areas := 0
	a.EachArea(func(p *Area) {
		areas++
		require.True(t, seen[p])
	})
	require.Equal(t, 100, areas)
}

// TestSRQ_Numbers: a released number is not reused soon, and a slot has a limited number of numbers.
func TestSRQ_Numbers(t *testing.T) {
	a := join(t, domainFile(t), 1)
	seen := map[uint32]bool{}
	for range maxVariant {
		n := addSRQ(t, a)
		require.False(t, seen[n])
		seen[n] = true
		require.NoError(t, a.RemoveSRQ(n))
	}
	for range maxVariant {
		require.True(t, seen[addSRQ(t, a)])
	}
	_, err := a.AddSRQ(7)
	require.ErrorIs(t, err, ucs.ErrNoMemory)
	_, err = a.AddSRQ(8)
	require.NoError(t, err)
}

func TestJoin_Flags(t *testing.T) {
	path := domainFile(t)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	_, err = Join(int(f.Fd()), 0, gidFor(1), func() {})
	require.ErrorIs(t, err, unix.EAGAIN)
	a, err := Join(int(f.Fd()), unix.O_CREAT|unix.O_EXCL, gidFor(1), func() {})
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	_, err = Join(int(f.Fd()), unix.O_CREAT|unix.O_EXCL, gidFor(2), func() {})
	require.ErrorIs(t, err, unix.EEXIST)
	b, err := Join(int(f.Fd()), 0, gidFor(2), func() {})
	require.NoError(t, err)
	require.NoError(t, b.Close())
}

func TestJoin_NotByPipe(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = r.Close(), w.Close() }()
	_, err = Join(int(r.Fd()), unix.O_CREAT, gidFor(1), func() {})
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = Join(-1, unix.O_CREAT, gidFor(1), func() {})
	require.ErrorIs(t, err, unix.EBADF)
}

// TestJoin_SkipsStoppedMembers: stopped members do not reply, and another one does.
func TestJoin_SkipsStoppedMembers(t *testing.T) {
	path := domainFile(t)
	c := startMember(t, path) // has the first place
	a := join(t, path, 1)
	n := addSRQ(t, a)
	c.Stop(t)
	defer c.Continue(t)
	b := join(t, path, 2)
	_, ok := b.SRQOwner(n)
	assert.True(t, ok)
}

// TestJoin_Concurrent: members that join at the same time are in one domain.
func TestJoin_Concurrent(t *testing.T) {
	path := domainFile(t)
	const n = 8
	var all [n]*Domain
	var errs [n]error
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { all[i], errs[i] = joinPath(path, i) })
	}
	wg.Wait()
	for i := range n {
		require.NoError(t, errs[i])
		defer func() { require.NoError(t, all[i].Close()) }()
	}
	for i := range n {
		number := addSRQ(t, all[i])
		for j := range n {
			m, ok := all[j].SRQOwner(number)
			require.True(t, ok)
			require.Equal(t, gidFor(i), m.GID)
		}
	}
}

// TestChurn: processes join, add SRQs, refer to a target QP, and are killed or leave in random order. The
// remaining member sees exactly the objects of members that are alive.
func TestChurn(t *testing.T) {
	path := domainFile(t)
	a := join(t, path, 1)
	type living struct {
		c    *child
		srqs []uint32
		qps  []uint32
	}
	var all []living
	random := rand.New(rand.NewPCG(1, 2))
	gone := map[uint32]bool{}
	check := func() {
		for _, l := range all {
			for _, n := range l.srqs {
				m, ok := a.SRQOwner(n)
				require.True(t, ok)
				require.Equal(t, l.c.Process.Pid, m.PID)
				delete(gone, n)
			}
			for _, n := range l.qps {
				require.True(t, a.Referred(n, noneDead))
				delete(gone, n)
			}
		}
		for n := range gone {
			_, srq := a.SRQOwner(n)
			require.False(t, srq || a.Referred(n, noneDead), "%#x has an owner", n)
		}
	}
	for range testenv.Rounds(30, 300) {
		if len(all) < 2 || len(all) < 5 && random.IntN(2) == 0 {
			l := living{c: startMember(t, path)}
			for i := range 3 {
				l.srqs = append(l.srqs, l.c.number(t, "srq"))
				l.qps = append(l.qps, l.c.number(t, "qp %d", i))
			}
			all = append(all, l)
		} else {
			i := random.IntN(len(all))
			l := all[i]
			all = append(all[:i], all[i+1:]...)
			if random.IntN(2) == 0 {
				l.c.Kill(t)
			} else {
				l.c.End(t)
			}
			for _, n := range append(l.srqs, l.qps...) {
				gone[n] = true
			}
		}
		check()
	}
}

// TestChange_HolderIsKilled: the lock for changes is released when its holder is killed.
func TestChange_HolderIsKilled(t *testing.T) {
	path := domainFile(t)
	a, c := join(t, path, 1), startMember(t, path)
	require.Equal(t, "ok", c.do(t, "hold"))
	require.ErrorIs(t, a.lock.set(changeByte, unix.F_WRLCK), unix.EAGAIN)
	c.Kill(t)
	addSRQ(t, a)
}

// TestFetch_DoesNotLock: a descriptor of the directory that a member has sent does not share the locks of the
// member.
func TestFetch_DoesNotLock(t *testing.T) {
	path := domainFile(t)
	c := startMember(t, path)
	a := join(t, path, 1)
	n := c.number(t, "srq")
	fd, err := fetch(a.id)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	c.Kill(t)
	_, ok := a.SRQOwner(n)
	assert.False(t, ok)
}
