package hwcheck

import (
	"fmt"
	"slices"
	"time"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// measure measures the time from a post to its completion, with one work request at a time.
func (r *rig) measure(flags verbs.SendFlags, list bool) (string, error) {
	times := make([]time.Duration, r.cfg.Iterations)
	r.expect(remoteAt, 0, 8)
	n := 1
	if list {
		n = 2
	}
	for i := range times {
		wrs := make([]verbs.SendWR, n)
		for k := range wrs {
			wrs[k] = r.write(0, 8, flags)
		}
		start := time.Now()
		if err := r.post(r.a, wrs...); err != nil {
			return "", err
		}
		if _, err := r.complete(n); err != nil {
			return "", err
		}
		times[i] = time.Since(start)
	}
	return summary(times), r.compare()
}

// summary formats the median and the extremes.
func summary(times []time.Duration) string {
	slices.Sort(times)
	at := func(q float64) time.Duration { return times[int(q*float64(len(times)-1))] }
	return fmt.Sprintf("%d times: least %v, median %v, 99%% %v, most %v", len(times), times[0], at(0.5), at(0.99), times[len(times)-1])
}

func (r *rig) measureBlueFlame() (string, error) { return r.measure(verbs.SendInline, false) }

// measureDoorbell posts lists of two, which are not written by BlueFlame.
func (r *rig) measureDoorbell() (string, error) { return r.measure(verbs.SendInline, true) }

// measureWindow posts work requests one by one, with a window of them in flight.
func (r *rig) measureWindow() (string, error) {
	r.expect(remoteAt, 0, 8)
	total := 10 * r.cfg.Iterations
	var wc [32]verbs.WC
	posted, done := 0, 0
	start := time.Now()
	for done < total {
		for posted < total && posted-done < sendDepth/2 {
			if err := r.post(r.a, r.write(0, 8, verbs.SendInline)); err != nil {
				return "", err
			}
			posted++
		}
		n := r.cq.Poll(wc[:])
		for i := range max(n, 0) {
			if wc[i].Status != verbs.WCSuccess {
				return "", wc[i].Status.Err()
			}
		}
		if done += max(n, 0); time.Since(start) > 6*r.cfg.Timeout {
			return "", fmt.Errorf("%d of %d completions within %v", done, total, 6*r.cfg.Timeout)
		}
	}
	took := time.Since(start)
	return fmt.Sprintf("%.3g million/s, %d at a time", float64(total)/took.Seconds()/1e6, sendDepth/2), r.compare()
}

// measureSetup creates and destroys QPs: each takes commands of the firmware.
func (r *rig) measureSetup() (string, error) {
	times := make([]time.Duration, 20)
	for i := range times {
		start := time.Now()
		qp, err := r.newQP(verbs.QPTypeRC, r.cq)
		if err != nil {
			return "", err
		}
		if err := qp.Close(); err != nil {
			return "", err
		}
		times[i] = time.Since(start)
	}
	return summary(times), nil
}
