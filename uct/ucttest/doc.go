// Package ucttest tells whether a transport keeps the contract of package uct.
//
// A transport's test file is a [Harness] and its private cases:
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
// and, for the checks with a second process, a main function that can become it:
//
//	func TestMain(m *testing.M) {
//		ucttest.PeerMain(map[string]ucttest.Harness{"rc": harness})
//		os.Exit(m.Run())
//	}
//
// Each check opens a pair of ifaces with tiny queues on one goroutine, does its
// work, flushes, and closes everything in order. Checks ask for capabilities and
// are skipped where these are not claimed; everything that is claimed is tried.
// Nothing sleeps: the suite calls Progress, yields, and gives up after a budget
// of idle rounds. A check that does not end is abandoned and fails alone. One that
// fails says so in one message, with the rule of the contract that it stands for.
//
// Checks of the death of a peer need one that can die: a process (ExecPeer), or
// [LocalPeer] where none can serve.
//
// [Results] runs the suite outside package testing.
package ucttest
