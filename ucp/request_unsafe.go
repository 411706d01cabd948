package ucp

import (
	"unsafe"

	"github.com/gucx/gucx/uct"
)

// requestOf is the request whose comp c is: its first field.
func requestOf(c *uct.Completion) *Request { return (*Request)(unsafe.Pointer(c)) }

// record is what the protocol of the stage notes in a request: a struct without pointers of up to this size.
// Each protocol has a type of its own, and sets all of it in a request before it reads.
type record [3]uint64

// recordOf is the record of a request whose protocol notes a T. A T has no pointer and is no longer than a
// record, which TestRooms in internal/archtest checks: conversion of a *T1 to *T2 where T2 is no larger (unsafe.Pointer, rule 1).
func recordOf[T any](r *Request) *T { return (*T)(unsafe.Pointer(&r.record)) }

var _ = [1]struct{}{}[unsafe.Offsetof(Request{}.comp)] // compile error unless it is the first
