package uctlayer

import (
	"fmt"
	"strings"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/uct"
)

// way is one variant of an operation.
type way struct {
	variant  layer.Variant
	needs    uct.Caps
	min, max int // minimum and maximum size in bytes
	post     func(*op) error
}

// pick returns the first of ways that the transport supports, that fits the size, and that is the
// selected variant, if one is selected.
func (o *op) pick(s layer.Spec, ways []way) error {
	caps := o.iface.Attr().Caps
	var has []string
	var near *way // supported, but not for the size
	for i := range ways {
		w := &ways[i]
		if !caps.Has(w.needs) {
			continue
		}
		has = append(has, w.variant.String())
		switch {
		case s.Variant != layer.Auto && s.Variant != w.variant:
		case s.Size >= w.min && s.Size <= w.max:
			o.post, o.variant = w.post, w.variant
			return nil
		case near == nil || w.max > near.max:
			near = w
		}
	}
	return &layer.LimitError{Transport: o.res.Transport, Spec: s, Limit: limit(s, near, has)}
}

// limit returns the reason why no variant fits: near is the supported variant with the highest
// maximum.
func limit(s layer.Spec, near *way, has []string) string {
	switch {
	case near != nil && s.Size < near.min:
		return fmt.Sprintf("%s takes at least %d bytes", near.variant, near.min)
	case near != nil:
		return fmt.Sprintf("%s takes at most %d bytes", near.variant, near.max)
	case len(has) > 0:
		return "the transport has only " + strings.Join(has, ", ")
	}
	return "the transport has no such operation"
}
