package connectx

import (
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs/uverbs"
)

// Software is implemented by a uverbs.File whose device is a program: package fakekernel. An adapter sees stores
// to its UAR pages; software has to be told, and runs in the threads that post and poll.
type Software interface {
	prm.Pollable
	// Doorbell is told of stores to a UAR page that was mapped; nil if the device looks at memory by itself, as an
	// adapter does.
	Doorbell(page []byte) prm.Doorbell
	// RecvDoorbell is told of receives that are posted to an XRC SRQ, by the kernel's handle; nil if it needs not.
	RecvDoorbell(srq uint32) prm.RecvDoorbell
}

// softwareOf is the device of a context if it is a program that wants to be told; else nil.
func softwareOf(ctx *uverbs.Context) Software {
	if s, ok := ctx.File().(Software); ok && s.Attention() != nil {
		return s
	}
	return nil
}

// softHardware is Hardware over software, which polls drive.
type softHardware struct {
	*Hardware
	prm.Pollable
}

var _ prm.RecvWatcher = softHardware{}

// RecvDoorbell implements prm.RecvWatcher.
func (s softHardware) RecvDoorbell(srqn uint32) prm.RecvDoorbell {
	s.mu.Lock()
	n, ok := s.srqs[srqn]
	s.mu.Unlock()
	if !ok {
		return nil
	}
	return s.software.RecvDoorbell(n.handle)
}
