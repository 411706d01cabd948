// Package ucttest checks whether a transport conforms to the contract of package uct.
//
// A transport's test file has a [Harness], and tests of the transport's own:
//
//	func TestConformance(t *testing.T) {
//		ucttest.Test(t, ucttest.Harness{
//			OpenMD:    func() (uct.MD, error) { return component.OpenMD("dev0") },
//			Transport: "rc",
//			Config: func(o ucttest.Options) any {
//				return &rc.Config{TxDepth: o.TxDepth, RxDepth: o.RxDepth}
//			},
//			StartPeer: ucttest.ExecPeer("rc"),
//		})
//	}
//
// and, for the checks with a second process, a main function that can run as this process:
//
//	func TestMain(m *testing.M) {
//		ucttest.PeerMain(map[string]ucttest.Harness{"rc": harness})
//		os.Exit(m.Run())
//	}
//
// Each check opens a pair of ifaces with short queues on one goroutine, runs
// operations, flushes, and closes everything in order. A check is skipped if the transport does not
// have a capability that it needs; every capability of the transport is checked.
// The suite does not sleep: it calls Progress and yields, and a wait fails after a budget
// of idle rounds. If a check does not return, it fails and the next one runs. The message of
// a failed check contains the rule of the contract that is violated.
//
// Checks of the death of a peer need a process that they can kill (ExecPeer), or
// [LocalPeer] if the peer cannot be another process.
//
// [Results] runs the suite outside package testing.
package ucttest
