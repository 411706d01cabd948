package softhca_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// directory is the directory of a shared domain as a file, which any process of the user can open. The
// layout is that of package xrcdomain.
type directory struct {
	t testing.TB
	f *os.File
	// undo has the original words.
	undo map[int64]uint32
}

const (
	dirHeader  = 24 // the words with the numbers of used slots and entries
	dirMembers = 4096
	dirSlots   = dirMembers + 1024*32
	dirQPs     = dirSlots + 1<<16*1024
	dirQPLen   = 256
	dirQPState = 64 + 4
)

// openDirectory opens the directory of the only domain of the process.
func openDirectory(t testing.TB) *directory {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, fd := range fds {
		if name, err := os.Readlink(fd); err == nil && strings.HasPrefix(name, "/memfd:gucx-xrcd") {
			f, err := os.OpenFile(fd, os.O_RDWR, 0)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, f.Close()) })
			return &directory{t: t, f: f, undo: map[int64]uint32{}}
		}
	}
	require.FailNow(t, "no directory")
	return nil
}

func (d *directory) load(at int64) uint32 {
	var b [4]byte
	_, err := d.f.ReadAt(b[:], at)
	require.NoError(d.t, err)
	return binary.NativeEndian.Uint32(b[:])
}

func (d *directory) store(at int64, v uint32) {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	_, err := d.f.WriteAt(b[:], at)
	require.NoError(d.t, err)
}

// corrupt changes a word.
func (d *directory) corrupt(at int64, v uint32) {
	if _, ok := d.undo[at]; !ok {
		d.undo[at] = d.load(at)
	}
	d.store(at, v)
}

// restore undoes corrupt.
func (d *directory) restore() {
	for at, v := range d.undo {
		d.store(at, v)
	}
	clear(d.undo)
}

// target returns the offset of the entry of a target.
func (d *directory) target(number uint32) int64 {
	for at := int64(dirQPs); ; at += dirQPLen {
		require.Less(d.t, at, int64(dirQPs+1<<15*dirQPLen), "no such target")
		if d.load(at) == number {
			return at
		}
	}
}

// srqWordAt returns the offset of the word of an SRQ.
func srqWordAt(number uint32) int64 {
	return dirSlots + int64(number%(1<<16))*1024 + int64(number>>16)*4
}

// corrupted is an initiator and members of a domain whose directory another process writes to.
type corrupted struct {
	*directory
	i      *node
	xs     []*xrcTarget
	queues []*verbs.SRQ
}

const (
	corruptedRecvs = 4
	corruptedLen   = 3000
	corruptedRDMA  = 512 << 10 // length of the memory for RDMA; the memory behind it must not change
)

func newCorrupted(t testing.TB, cfg softhca.Config) *corrupted {
	attr := sharedDomain(t)
	b := &corrupted{i: openNode(t, cfg)}
	for range 2 {
		x := openNode(t, cfg).enterDomain(attr)
		fill(x.buf.Bytes(), 1)
		b.xs, b.queues = append(b.xs, x), append(b.queues, x.newSRQ())
		for id := range corruptedRecvs {
			x.post(b.queues[len(b.queues)-1], uint64(id), id*corruptedLen, corruptedLen)
		}
	}
	b.directory = openDirectory(t)
	return b
}

// places returns the offsets of the words to corrupt: of the target, the queues, the members, and the
// numbers of used slots and entries.
func (b *corrupted) places(target int64) (at []int64) {
	for off := int64(0); off < dirQPLen; off += 4 {
		at = append(at, target+off)
	}
	for range 8 {
		at = append(at, target+dirQPState)
		for _, q := range b.queues {
			at = append(at, srqWordAt(q.Number()))
		}
	}
	for off := int64(0); off < 2*32; off += 4 {
		at = append(at, dirMembers+off)
	}
	return append(at, dirHeader, dirHeader+4)
}

// post posts a message, or a write, to any queue.
func (b *corrupted) post(t *rapid.T, qp *verbs.QP) {
	k := rapid.IntRange(0, 1).Draw(t, "member")
	wr := verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SRQN: b.queues[k].Number(),
		SGList: []verbs.SGE{b.i.mr.SGE(0, rapid.IntRange(0, corruptedLen+10).Draw(t, "length"))}}
	if rapid.Bool().Draw(t, "write") {
		wr.Opcode, wr.RemoteAddr, wr.RKey = verbs.OpRDMAWrite, b.xs[k].mr.Addr()+corruptedRDMA, b.xs[k].mr.RKey()
	}
	_, err := qp.PostSend([]verbs.SendWR{wr})
	require.NoError(t, err)
}

// drive polls all CQs a few times, and posts the receives again.
func (b *corrupted) drive(t *rapid.T) (sent int) {
	var wcs [16]verbs.WC
	for range 20 {
		sent += b.i.cq.Poll(wcs[:])
		for k, x := range b.xs {
			for _, wc := range wcs[:x.cq.Poll(wcs[:])] {
				require.Less(t, wc.ID, uint64(corruptedRecvs))
				x.post(b.queues[k], wc.ID, int(wc.ID)*corruptedLen, corruptedLen)
			}
		}
	}
	return sent
}

// Another process changes arbitrary words of the directory while messages are sent to the members:
// nothing hangs or crashes, every work request completes, and the devices write only to posted
// receives and to the memory for RDMA. After the words are restored, the domain works again.
func TestSharedXRC_CorruptedDirectory(t *testing.T) {
	for name, cfg := range map[string]softhca.Config{"mapped": {}, "ring": {NoCMA: true}} {
		t.Run(name, func(t *testing.T) {
			b := newCorrupted(t, cfg)
			want := bytes.Clone(b.xs[0].buf.Bytes())
			rapid.Check(t, func(t *rapid.T) {
				b.run(t)
				for _, x := range b.xs {
					for _, part := range [][2]int{{corruptedRecvs * corruptedLen, corruptedRDMA}, {corruptedRDMA + corruptedLen + 10, bufLen}} {
						require.True(t, bytes.Equal(want[part[0]:part[1]], x.buf.Bytes()[part[0]:part[1]]))
					}
				}
			})
		})
	}
}

func (b *corrupted) run(t *rapid.T) {
	qp, err := b.i.pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCSend, SendCQ: b.i.cq, Cap: verbs.QPCap{MaxSendWR: 16, MaxSendSGE: 1}})
	require.NoError(t, err)
	target := b.xs[0].newTarget()
	toRTS(b.t, target, b.i.gid, qp.Number(), defaultLink)
	toRTS(b.t, qp, b.xs[0].gid, target.Number(), defaultLink)
	defer b.restore()
	places := b.places(b.target(target.Number()))
	posted, ended := 1, 0
	b.post(t, qp)
	testenv.ProgressWithin(b.t, patience, func() bool { ended += b.drive(t); return ended == 1 })
	for range rapid.IntRange(1, 6).Draw(t, "steps") {
		at := rapid.SampledFrom(places).Draw(t, "at")
		v := rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(0, 8),
			rapid.SampledFrom([]uint32{b.load(at) ^ 1, b.load(at) + 1<<8, 1<<10 | 1, 1 << 11, ^uint32(0)})).Draw(t, "word")
		b.corrupt(at, v)
		b.post(t, qp)
		posted++
		ended += b.drive(t)
	}
	require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState))
	testenv.ProgressWithin(b.t, patience, func() bool { ended += b.drive(t); return ended == posted })
	require.NoError(t, qp.Close())
	require.NoError(t, target.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState), "from any state")
	b.restore()
	require.NoError(t, target.Close())
}
