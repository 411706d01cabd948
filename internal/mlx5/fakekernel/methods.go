package fakekernel

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// methods and commands are the handlers of the methods and commands that the kernel implements.
var (
	methods  map[uverbs.Method]func(*file, *request) error
	commands map[uverbs.CommandNumber]func(*file, *request) error
)

func init() {
	methods = map[uverbs.Method]func(*file, *request) error{
		uverbs.MethodGetContext: (*file).getContext, uverbs.MethodAsyncEvents: (*file).asyncEvents,
		uverbs.MethodQueryPort: (*file).queryPort, uverbs.MethodGIDTable: (*file).gidTable, uverbs.MethodGIDEntry: (*file).gidEntry,
		uverbs.MethodCreateCQ: (*file).createCQ, uverbs.MethodDestroyCQ: destroy(kindCQ, 0, 8),
		uverbs.MethodCreateSRQ: (*file).createSRQ, uverbs.MethodDestroySRQ: destroy(kindSRQ, 0, 4),
		uverbs.MethodCreateQP: (*file).createQP, uverbs.MethodDestroyQP: destroy(kindQP, 0, 4),
		uverbs.MethodDeallocPD: destroy(kindPD, 0, 0), uverbs.MethodDeregMR: destroy(kindMR, 0, 0),
		uverbs.MethodDestroyAH: destroy(kindAH, 0, 0), uverbs.MethodCloseXRCD: destroy(kindXRCD, 0, 0),
		uverbs.MethodMLX5AllocUAR: (*file).allocUAR, uverbs.MethodMLX5FreeUAR: destroy(kindUAR, 0x1000, 0),
	}
	commands = map[uverbs.CommandNumber]func(*file, *request) error{
		uverbs.CmdQueryDevice: (*file).queryDevice, uverbs.CmdAllocPD: (*file).allocPD, uverbs.CmdRegMR: (*file).regMR,
		uverbs.CmdCompChannel: (*file).compChannel, uverbs.CmdCreateAH: (*file).createAH, uverbs.CmdModifyQP: (*file).modifyQP,
		uverbs.CmdQueryQP: (*file).queryQP, uverbs.CmdModifySRQ: (*file).modifySRQ, uverbs.CmdOpenXRCD: (*file).openXRCD,
		uverbs.CmdOpenQP: (*file).openQP,
	}
}

// destroy returns a method that destroys the object in an attribute and replies with the counts of its events, of replyLen
// bytes.
func destroy(kind, attr uint16, replyLen int) func(*file, *request) error {
	return func(f *file, r *request) error {
		handle := r.object(attr)
		if replyLen > 0 {
			clear(r.out(1, replyLen))
		}
		if r.err != nil {
			return r.err
		}
		return f.remove(kind, handle)
	}
}

// getContext replies as a ConnectX-4 does, with dynamic UAR pages.
func (f *file) getContext(r *request) error {
	in, out := r.in(uverbs.AttrDriverIn, 32), r.out(uverbs.AttrDriverOut, 72)
	vectors, support := r.out(0, 4), r.out(1, 8)
	if r.err != nil {
		return r.err
	}
	const dynamicUARs = 3 // MLX5_LIB_CAP_4K_UAR, MLX5_LIB_CAP_DYN_UAR
	if in.u64(24) != dynamicUARs {
		return unix.EOPNOTSUPP
	}
	vectors.put32(0, 4)
	support.put64(0, 1) // IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS
	out.put32(0, 1<<18) // qp_tab_size
	out.put32(4, prm.BFRegLen)
	out.put32(12, 64)        // cache_line_size
	out.put16(16, 1024)      // max_sq_desc_sz
	out.put16(18, 512)       // max_rq_desc_sz
	out.put32(20, 1<<15)     // max_send_wqebb
	out.put32(24, 1<<15)     // max_recv_wr
	out.put32(28, 1<<15)     // max_srq_recv_wr
	out.put16(32, 1)         // num_ports
	out.put32(40, 72)        // response_length
	out[44] = min(in[16], 1) // cqe_version
	out[45] = 3              // cmds_supp_uhw
	out.put32(56, 12)        // log_uar_size
	out.put32(60, 1)         // num_uars_per_page
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = true
	return nil
}

func (f *file) asyncEvents(r *request) error {
	if r.object(0); r.err != nil {
		return r.err
	}
	p, err := newPipe()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.async = p
	r.made(0, uint32(p.read))
	return nil
}

// queryDevice fills struct ib_uverbs_query_device_resp.
func (f *file) queryDevice(r *request) error {
	r.in(attrCoreIn, 8)
	out := r.out(attrCoreOut, 176)
	if r.err != nil {
		return r.err
	}
	a, err := f.hw.QueryDevice()
	if err != nil {
		return err
	}
	out.put64(0, 12<<32|28<<16|2008) // fw_ver
	for i := range 8 {
		out[8+i] = byte(a.NodeGUID >> (56 - 8*i))
	}
	out.put64(24, a.MaxMRSize)
	for off, v := range map[int]int{40: 0x2c9, 44: 0x1013, 52: a.MaxQP, 56: a.MaxQPWR, 64: a.MaxSGE, 68: a.MaxSGE, 72: a.MaxCQ, 76: a.MaxCQE,
		80: a.MaxMR, 84: a.MaxPD, 88: a.MaxRDAtomic, 100: a.MaxInitRD, 108: int(a.AtomicCap), 144: a.MaxAH, 156: a.MaxSRQ,
		160: a.MaxSRQWR, 164: a.MaxSRQSGE} {
		out.put32(off, uint32(v))
	}
	out[171] = a.PhysPorts
	return nil
}

// Values of struct ib_uverbs_query_port_resp.
const (
	linkInfiniBand = 1
	linkEthernet   = 2
	width4x        = 2
	speedEDR       = 32
)

// queryPort fills struct ib_uverbs_query_port_resp_ex.
func (f *file) queryPort(r *request) error {
	port, out := r.constant(0), r.out(1, 48)
	if r.err != nil {
		return r.err
	}
	p, err := f.hw.QueryPort(uint8(min(port, 255)))
	if err != nil {
		return err
	}
	dev, err := f.hw.QueryDevice()
	if err != nil {
		return err
	}
	out.put32(4, dev.MaxMsgSize)
	out.put32(16, uint32(p.GIDs))
	out.put16(22, p.LID)
	out[26], out[27], out[28] = byte(p.State), byte(p.MaxMTU), byte(p.ActiveMTU)
	out[34], out[35], out[37] = width4x, speedEDR, linkEthernet
	if f.k.cfg.InfiniBand {
		out[37] = linkInfiniBand
	}
	return nil
}

// gidType is the type of the only entry of the GID table.
func (f *file) gidType() verbs.GIDType {
	if f.k.cfg.InfiniBand {
		return verbs.GIDInfiniBand
	}
	return verbs.GIDRoCEv2
}

// putGID fills struct ib_uverbs_gid_entry.
func (f *file) putGID(out output) error {
	gid, err := f.hw.QueryGID(1, 0)
	if err != nil {
		return err
	}
	copy(out[:16], gid[:])
	out.put32(16, 0)
	out.put32(20, 1)
	out.put32(24, uint32(f.gidType()))
	return nil
}

const gidEntryLen = 32

func (f *file) gidTable(r *request) error {
	entryLen, out, count := r.constant(0), r.out(2, gidEntryLen), r.out(3, 8)
	r.in(1, 4)
	if r.err != nil {
		return r.err
	}
	if entryLen != gidEntryLen {
		return unix.EINVAL
	}
	count.put64(0, 1)
	return f.putGID(out)
}

func (f *file) gidEntry(r *request) error {
	port, index, out := r.constant(0), r.constant(1), r.out(3, gidEntryLen)
	r.in(2, 4)
	if r.err != nil {
		return r.err
	}
	if port != 1 || index > 255 {
		return unix.EINVAL
	}
	if index > 0 {
		return unix.ENODATA
	}
	return f.putGID(out)
}

// allocUAR allocates a UAR page, whose mmap offset is derived from its number.
func (f *file) allocUAR(r *request) error {
	typ, offset, n, index := r.constant(0x1001), r.out(0x1002, 8), r.out(0x1003, 4), r.out(0x1004, 4)
	if r.object(0x1000); r.err != nil {
		return r.err
	}
	if typ > 1 { // MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC
		return unix.EINVAL
	}
	uar, err := f.hw.AllocUAR(prm.UARType(typ))
	if err != nil {
		return err
	}
	o := f.add(&object{kind: kindUAR, number: uar.Index, uar: uar, destroy: func() error { return f.hw.FreeUAR(uar) }})
	r.made(0x1000, o.handle)
	offset.put64(0, uint64(uar.Index)*prm.UARPageLen)
	n.put32(0, prm.UARPageLen)
	index.put32(0, uar.Index)
	return nil
}

// uarPage returns the UAR page with an index.
func (f *file) uarPage(index uint32) (*object, error) {
	for _, handle := range f.handles(kindUAR) {
		if o, err := f.find(kindUAR, uint64(handle)); err == nil && o.number == index {
			return o, nil
		}
	}
	return nil, unix.EINVAL
}

func (f *file) allocPD(r *request) error {
	r.in(attrCoreIn, 8)
	out, driver := r.out(attrCoreOut, 4), r.out(uverbs.AttrDriverOut, 4)
	if r.err != nil {
		return r.err
	}
	pdn, err := f.hw.AllocPD()
	if err != nil {
		return err
	}
	o := f.add(&object{kind: kindPD, number: pdn, hw: pdn, destroy: func() error { return f.hw.DeallocPD(pdn) }})
	out.put32(0, o.handle)
	driver.put32(0, pdn)
	return nil
}

// regMR executes a command with struct ib_uverbs_reg_mr.
func (f *file) regMR(r *request) error {
	in, out := r.in(attrCoreIn, 40), r.out(attrCoreOut, 12)
	if r.err != nil {
		return r.err
	}
	pd, err := f.find(kindPD, uint64(in.u32(32)))
	if err != nil {
		return err
	}
	start, n := in.u64(8), in.u64(16)
	if start == 0 || n == 0 || n >= 1<<47 || start != in.u64(24) {
		return unix.EINVAL
	}
	lkey, rkey, err := f.hw.RegMR(pd.hw, bytesAt(start, n), verbs.Access(in.u32(36)))
	if err != nil {
		return err
	}
	o := f.add(&object{kind: kindMR, number: lkey, hw: lkey, parents: []*object{pd}, destroy: func() error { return f.hw.DeregMR(lkey, nil) }})
	out.put32(0, o.handle)
	out.put32(4, lkey)
	out.put32(8, rkey)
	return nil
}

// createAH executes a command with struct ib_uverbs_create_ah. It derives the address of the neighbor from the GID.
func (f *file) createAH(r *request) error {
	in, out, driver := r.in(attrCoreIn, 56), r.out(attrCoreOut, 4), r.out(uverbs.AttrDriverOut, 16)
	if r.err != nil {
		return r.err
	}
	pd, err := f.find(kindPD, uint64(in.u32(16)))
	if err != nil {
		return err
	}
	attr := verbs.AHAttr{DGID: verbs.GID(in[24:40]), FlowLabel: in.u32(40), SGIDIndex: in[44], HopLimit: in[45], TrafficClass: in[46],
		DLID: in.u16(48), SL: in[50], Global: in[53] != 0, Port: in[54]}
	handle, _, err := f.hw.CreateAH(pd.hw, attr)
	if err != nil {
		return err
	}
	o := f.add(&object{kind: kindAH, parents: []*object{pd}, destroy: func() error { return f.hw.DestroyAH(handle) }})
	out.put32(0, o.handle)
	driver.put32(0, 16)
	copy(driver[4:10], attr.DGID[10:])
	return nil
}

func pow2(n uint32) uint32 { return 1 << bits.Len32(max(n, 1)-1) }
