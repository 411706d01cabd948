package rccore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// stand makes a limit that of a process that has not run for d.
func (l *Limit) stand(d time.Duration) { l.last -= d }

// TestLimit_CountsWhatIsLookedAt: a wait takes its time where it is looked at often enough, and ten
// looks where the process stands between them.
func TestLimit_CountsWhatIsLookedAt(t *testing.T) {
	for _, tc := range []struct {
		pause time.Duration
		looks int
	}{{time.Millisecond, 1000}, {100 * time.Millisecond, 10}, {2 * time.Second, 10}, {time.Hour, 10}} {
		t.Run(tc.pause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLimit(time.Second)
				assert.True(t, l.Waits())
				assert.False(t, l.Over())
				for i := range tc.looks {
					time.Sleep(tc.pause)
					assert.Equal(t, i == tc.looks-1, l.Over(), "look %d", i)
				}
			})
		})
	}
	none := Limit{}
	assert.False(t, none.Waits())
}
