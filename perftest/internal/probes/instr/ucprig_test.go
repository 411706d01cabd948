package instr

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct/sm"
)

// TestUCPRig_NothingLaterOverSM: a put over sm has ended when it is posted, so that there is no
// progress to count, which is no error of the run.
func TestUCPRig_NothingLaterOverSM(t *testing.T) {
	r, err := openUCP(fabrics[0], sm.Name)
	require.NoError(t, err)
	defer func() { assert.NoError(t, r.Close()) }()
	_, err = r.steps(Case{Op: Busy, API: UCP, Size: 8, Switch: sm.Name})
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	s, err := r.steps(Case{Op: Flush, API: UCP, Size: 8, Switch: sm.Name})
	require.NoError(t, err)
	assert.NoError(t, s.once(func() {}, func(bool) {}))
}
