package cli

import (
	"errors"
	"slices"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/ucplayer"
	"github.com/gucx/gucx/perftest/internal/layers/uctlayer"
)

var (
	errRegistered = errors.New("--registered is for the uct layer, and replaces --memory")
	errPlain      = errors.New("--memory plain is for the ucp layer")
)

// chosenMemory returns the class of memory of the flags.
func (s *settings) chosenMemory() (layer.Memory, error) {
	m, err := layer.ParseMemory(s.memory)
	if err != nil || !s.registered {
		return m, err
	}
	if m == layer.Plain {
		return m, errRegistered
	}
	return layer.Mapped, nil
}

// checkMemory rejects layers that do not have the class of memory.
func (j *job) checkMemory(names []string) error {
	switch {
	case j.settings.registered && !slices.Equal(names, []string{uctlayer.Name}):
		return errRegistered
	case j.plan.Memory == layer.Plain && !slices.Equal(names, []string{ucplayer.Name}):
		return errPlain
	}
	return nil
}
