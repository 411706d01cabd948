package adapter

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/uverbs"
)

// Software is implemented by a uverbs.File whose device is software, as in package fakekernel. Software does not detect
// stores to its UAR pages, so the driver calls it, and it runs in the threads that post and poll.
type Software interface {
	prm.Pollable
	// Doorbell returns the doorbell that the driver calls after each store to a mapped UAR page; nil if the device polls
	// memory and needs no call.
	Doorbell(page []byte) prm.Doorbell
	// RecvDoorbell returns the doorbell that the driver calls after each post to an XRC SRQ; nil if the device needs no
	// call. srq is the kernel's handle.
	RecvDoorbell(srq uint32) prm.RecvDoorbell
}

// softwareOf returns the device of a context if it is software that the driver must call; else nil.
func softwareOf(ctx *uverbs.Context) Software {
	if s, ok := ctx.File().(Software); ok && s.Attention() != nil {
		return s
	}
	return nil
}

// softHardware is hardware whose device is software, which the pollers drive.
type softHardware struct {
	*hardware
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
