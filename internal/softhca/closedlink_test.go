package softhca

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// If a device closes only a link, for example after a dial that timed out, targets that are connected to
// the device do not fail. They fail when the device is closed.
func TestTarget_InitiatorClosesOnlyLink(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "domain"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	for name, domain := range map[string]verbs.XRCDInitAttr{
		"private": {FD: verbs.PrivateXRCD}, "shared": {FD: int(f.Fd()), Flags: os.O_CREATE},
	} {
		t.Run(name, func(t *testing.T) {
			h, peer := openTest(t), openTest(t)
			xrcdn, err := h.OpenXRCD(domain)
			require.NoError(t, err)
			target, _, err := h.CreateTarget(xrcdn)
			require.NoError(t, err)
			require.NoError(t, h.ModifyQP(target, &verbs.QPAttr{State: verbs.QPStateInit}, verbs.QPMaskState))
			require.NoError(t, h.ModifyQP(target, &verbs.QPAttr{State: verbs.QPStateRTR, DestQPN: 77,
				AH: verbs.AHAttr{DGID: peer.gid}}, verbs.QPMaskState|verbs.QPMaskDestQPN|verbs.QPMaskAV))
			for _, c := range []struct {
				end  func(l io.Closer) error
				want verbs.QPState
			}{
				{func(l io.Closer) error { return l.Close() }, verbs.QPStateRTR},
				{func(io.Closer) error { return peer.port.Close() }, verbs.QPStateErr},
			} {
				out, err := peer.port.Dial(t.Context(), h.gid)
				require.NoError(t, err)
				require.NoError(t, c.end(out))
				testenv.ProgressWithin(t, testPatience, func() bool { return len(*h.inbound.Load()) == 0 })
				h.dials.Wait()
				state, err := h.QueryQP(target)
				require.NoError(t, err)
				assert.Equal(t, c.want, state)
			}
			require.NoError(t, h.DestroyQP(target))
			require.NoError(t, h.CloseXRCD(xrcdn))
		})
	}
}
