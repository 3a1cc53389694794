// The controllers of Kubeflow Trainer and JobSet in one process, without their webhooks, which need
// a Service that the API server can reach: `KUBECONFIG=… kubeflow-controllers`.
package main

import (
	"log"
	"os"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/controller"
	"github.com/kubeflow/trainer/v2/pkg/runtime/core"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	options "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/controllers"
)

func main() {
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(trainer.AddToScheme(scheme))
	utilruntime.Must(jobset.AddToScheme(scheme))
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:  scheme,
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics: server.Options{BindAddress: "0"},
	})
	check(err)
	ctx := ctrl.SetupSignalHandler()
	check(controllers.SetupJobSetIndexes(ctx, manager.GetFieldIndexer()))
	jobs := controllers.NewJobSetReconciler(
		manager.GetClient(), scheme, manager.GetEventRecorderFor("jobset"))
	check(jobs.SetupWithManager(manager))
	runtimes, err := core.New(ctx, manager.GetClient(), manager.GetFieldIndexer())
	check(err)
	_, err = controller.SetupControllers(manager, runtimes, options.Options{})
	check(err)
	check(manager.Start(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
