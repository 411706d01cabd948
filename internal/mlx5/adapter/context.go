package adapter

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// cqeVersion is the version of the CQE format with the user index of the queue.
const cqeVersion = 1

// open opens a device file. The caller has set the defaults in queues.
func open(k uverbs.Kernel, info uverbs.Info, queues mlx5.Config) (*hardware, error) {
	if info.ABI != driverABI {
		return nil, lacks(&info, "version %d of the ABI of mlx5, want %d", info.ABI, driverABI)
	}
	// The kernel uses the numbers of registers for static UAR pages only. libmlx5 passes them as well.
	request := contextRequest{totalRegisters: uint32(queues.TotalUUARs), lowLatency: uint32(queues.LowLatUUARs),
		maxCQEVersion: cqeVersion, libCaps: libCap4KUAR | libCapDynamicUAR}
	var reply contextReply
	ctx, err := uverbs.Open(k, info, uverbs.DriverMLX5, uverbs.In(uverbs.AttrDriverIn, &request), uverbs.Out(uverbs.AttrDriverOut, &reply))
	if err != nil {
		return nil, err
	}
	h := newHardware(ctx, reply)
	if !mmio.ForDevices && h.software == nil {
		err = lacks(&info, "fences: want a build for amd64 or arm64 without the tag purego")
	} else if err = h.reply.check(&info, os.Getpagesize()); err == nil {
		err = h.queryLimits()
	}
	if err != nil {
		_ = ctx.Close()
		return nil, err
	}
	go h.deliverEvents()
	return h, nil
}

// Limits of values in a reply.
const (
	minReplyLen   = 64 // length of contextReply up to uarsPerPage, in bytes
	minSendWQELen = 2 * prm.BBLen
	maxSendWQELen = prm.MaxDS * prm.SegLen
	uarLenLog2    = 12 // prm.UARPageLen
	// minDynamicUAR is the first kernel with dynamic UAR pages.
	minDynamicUAR = "5.7"
)

// check returns an error if this package does not support the device. pageLen is the page length of the CPU in bytes.
func (r *contextReply) check(info *uverbs.Info, pageLen int) error {
	op := uverbs.MethodGetContext.String()
	switch {
	case r.replyLen < minReplyLen:
		return &uverbs.Error{Dev: info.Name, Op: op, Errno: unix.EOPNOTSUPP, Feature: "description of UAR pages", MinKernel: uverbs.MinKernel}
	case r.totalRegisters != 0:
		return &uverbs.Error{Dev: info.Name, Op: op, Errno: unix.EOPNOTSUPP, Feature: "dynamic UAR pages (it assigns a register to each QP)",
			MinKernel: minDynamicUAR}
	case r.cqeVersion != cqeVersion:
		return lacks(info, "version %d of CQEs, want %d, with user indexes", r.cqeVersion, cqeVersion)
	case r.uarLenLog2 != uarLenLog2 || r.uarsPerPage != 1 || pageLen != prm.UARPageLen:
		return lacks(info, "%d UAR pages of 2^%d bytes in a page of %d bytes, want 1 of 2^%d in %d", r.uarsPerPage, r.uarLenLog2,
			pageLen, uarLenLog2, prm.UARPageLen)
	case r.bfRegLen != 0 && r.bfRegLen != prm.BFRegLen:
		return lacks(info, "BlueFlame registers of %d bytes, want %d", r.bfRegLen, prm.BFRegLen)
	case r.maxSendWQELen < minSendWQELen:
		return &ReplyError{Dev: info.Name, Op: op, Reason: fmt.Sprintf("work requests of at most %d bytes", r.maxSendWQELen)}
	}
	return nil
}

// hasBlueFlame reports whether the adapter has BlueFlame.
func (h *hardware) hasBlueFlame() bool { return h.reply.bfRegLen != 0 }

// maxPayload returns the length in bytes of a work request of maximum length without the largest header, that of UD.
func (r *contextReply) maxPayload() int {
	return min(int(r.maxSendWQELen), maxSendWQELen) - prm.CtrlLen - prm.AVLen
}
