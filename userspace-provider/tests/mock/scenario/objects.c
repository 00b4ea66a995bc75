// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* What is registered, contexts, and the objects that the kernel alone knows. */
#include "scenario.h"

void registration(void)
{
	const struct verbs_device_ops *ops = mock.device_ops;
	struct verbs_device *device;

	CHECK(ops && !strcmp(ops->name, "ferroce"));
	CHECK(ops->match_min_abi_version == 2 && ops->match_max_abi_version == 2);
	CHECK(ops->match_table[0].kind == VERBS_MATCH_DRIVER_ID);
	CHECK(ops->match_table[0].u.driver_id == DRIVER_ID);
	CHECK(ops->match_table[1].kind == VERBS_MATCH_SENTINEL);
	CHECK(!ops->match_device && ops->import_context && !ops->static_providers);
	device = ops->alloc_device(NULL);
	CHECK(device);
	memset(device, 0xff, sizeof(*device));
	ops->uninit_device(device);
}

void contexts(void)
{
	struct verbs_context *vctx;

	mock.error = EPERM;
	errno = 0;
	CHECK(!mock.device_ops->alloc_context(NULL, mock.cmd_fd, NULL) && errno == EPERM);
	CHECK(!mock.contexts);
	mock.error = 0;
	/* A driver that has our id but is another one, or of another version. */
	mock.signature = "rdma_xyz";
	errno = 0;
	CHECK(!mock.device_ops->alloc_context(NULL, mock.cmd_fd, NULL) && errno == EPROTO);
	CHECK(!mock.contexts);
	mock.signature = "ferroce2";
	vctx = mock.device_ops->alloc_context((void *)0x20, mock.cmd_fd, NULL);
	CHECK(vctx && mock.contexts == 1);
	context = &vctx->context;
	CHECK(context->device == (void *)0x20);
	/* Another context on the same file. */
	mock.error = EIO;
	errno = 0;
	CHECK(!mock.device_ops->import_context((void *)0x20, mock.cmd_fd) && errno == EIO);
	CHECK(mock.contexts == 1);
	mock.error = 0;
	vctx = mock.device_ops->import_context((void *)0x20, mock.cmd_fd);
	CHECK(vctx && mock.contexts == 2 && vctx->context.num_comp_vectors == 3);
	mock.ops.free_context(&vctx->context);
	CHECK(mock.contexts == 1);
}

/* Domains around a domain, which the kernel knows nothing of. */
static void domains(void)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_parent_domain_init_attr attr = { .pd = NULL };
	struct ibv_pd *parent, *imported, *other;
	struct ibv_td *td;

	errno = 0;
	CHECK(!mock.ops.alloc_parent_domain(context, &attr) && errno == EINVAL);
	td_attr.comp_mask = 1;
	CHECK(!mock.ops.alloc_td(context, &td_attr) && errno == EOPNOTSUPP);
	td_attr.comp_mask = 0;
	td = mock.ops.alloc_td(context, &td_attr);
	CHECK(td && td->context == context);
	attr = (struct ibv_parent_domain_init_attr){ .pd = pd, .td = td, .comp_mask = 1 << 2 };
	CHECK(!mock.ops.alloc_parent_domain(context, &attr) && errno == EOPNOTSUPP);
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	errno = 0;
	CHECK(!mock.ops.alloc_parent_domain(context, &attr) && errno == EINVAL);
	attr.comp_mask = 0;
	parent = mock.ops.alloc_parent_domain(context, &attr);
	CHECK(parent && parent != pd && parent->context == context && parent->handle == pd->handle);
	/* What is referred to stays. */
	CHECK(mock.ops.dealloc_pd(pd) == EBUSY && mock.ops.dealloc_td(td) == EBUSY && mock.objects == 1);
	CHECK(!mock.ops.dealloc_pd(parent) && mock.objects == 1);
	CHECK(!mock.ops.dealloc_td(td));

	imported = mock.ops.import_pd(context, 17);
	CHECK(imported && imported->context == context && imported->handle == 17);
	/* It outlives its sharing while there is a parent domain around it. */
	attr = (struct ibv_parent_domain_init_attr){ .pd = imported };
	parent = mock.ops.alloc_parent_domain(context, &attr);
	CHECK(parent && mock.ops.dealloc_pd(imported) == EBUSY);
	mock.ops.unimport_pd(imported);
	other = mock.ops.import_pd(context, 18);
	CHECK(other && other != imported && imported->handle == 17);
	mock.ops.unimport_pd(other);
	CHECK(parent->handle == 17 && !mock.ops.dealloc_pd(parent));
	imported = mock.ops.import_pd(context, 17);
	mock.ops.unimport_pd(imported);
	CHECK(mock.objects == 1);
}

/* Regions that are registered again, imported, or nothing. */
static void regions(struct ibv_mr *mr)
{
	struct ibv_mr *other;

	CHECK(!mock.ops.rereg_mr((struct verbs_mr *)mr, 5, NULL, (void *)0x4000, 0x100, 3));
	mock.error = EFAULT;
	CHECK(mock.ops.rereg_mr((struct verbs_mr *)mr, 5, NULL, (void *)0x4000, 0x100, 3) == EFAULT);
	SAID("rereg_mr: not all of it is memory");
	/* Rights that ib_core refuses, of which the module says nothing. */
	mock.error = EOPNOTSUPP;
	CHECK(mock.ops.rereg_mr((struct verbs_mr *)mr, 5, NULL, (void *)0x4000, 0x100, 0x41) == EOPNOTSUPP);
	SAID("rereg_mr: access is 0x41, and may be of 0x3ff0013f");
	mock.error = EINVAL;
	CHECK(mock.ops.rereg_mr((struct verbs_mr *)mr, 5, NULL, (void *)0x4000, 0x100, 2) == EINVAL);
	SAID("rereg_mr: access 0x2 has remote write or atomic without local write");
	CHECK(mock.ops.rereg_mr((struct verbs_mr *)mr, 5, NULL, (void *)0x4000, 0x100, 3) == EINVAL);
	SAID("rereg_mr: the kernel refuses it");
	mock.error = EFAULT;
	errno = 0;
	CHECK(!mock.ops.import_mr(pd, 8) && errno == EFAULT);
	/* The kernel is not asked. */
	other = mock.ops.alloc_null_mr(pd);
	CHECK(other && other->pd == pd && other->length == SIZE_MAX && other->lkey == 0xffffff00);
	CHECK(!mock.ops.dereg_mr((struct verbs_mr *)other));
	mock.error = 0;
	other = mock.ops.import_mr(pd, 8);
	CHECK(other && other->lkey == 9 && other->pd == pd);
	mock.ops.unimport_mr(other);
}

void plain_objects(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr port;
	struct ibv_ah_attr ah_attr = { .dlid = 4 };
	struct ibv_ah *ah;
	struct ibv_mr *mr;

	CHECK(!mock.ops.query_device_ex(context, NULL, &attr, sizeof(attr)));
	CHECK(!strcmp(attr.orig_attr.fw_ver, "7.2.1"));
	CHECK(!mock.ops.query_device_ex(context, NULL, &attr, sizeof(attr.orig_attr)));
	CHECK(!mock.ops.query_port(context, 1, &port) && port.lid == 77);

	mock.error = ENOMEM;
	errno = 0;
	CHECK(!mock.ops.alloc_pd(context) && errno == ENOMEM);
	mock.error = 0;
	pd = mock.ops.alloc_pd(context);
	CHECK(pd && pd->context == context);

	mr = mock.ops.reg_mr(pd, (void *)0x1000, 0x2000, 0x3000, 1);
	CHECK(mr && mr->lkey == 6);
	regions(mr);
	mock.error = EBUSY;
	CHECK(mock.ops.dereg_mr((struct verbs_mr *)mr) == EBUSY && mr->lkey == 6);
	errno = 0;
	CHECK(!mock.ops.reg_mr(pd, (void *)0x1000, 0x2000, 0x3000, 1) && errno == EBUSY);
	CHECK(!mock.ops.create_ah(pd, &ah_attr));
	SAID("create_ah: the kernel refuses it");
	/* What ib_core refuses, of which the module says nothing. */
	mock.error = EINVAL;
	CHECK(!mock.ops.create_ah(pd, &ah_attr) && errno == EINVAL);
	SAID("create_ah: is_global is 0, and RoCE needs a GID");
	ah_attr.is_global = 1;
	ah_attr.grh.sgid_index = 77;
	CHECK(!mock.ops.create_ah(pd, &ah_attr) && errno == EINVAL);
	SAID("create_ah: the kernel refuses it");
	mock.error = ENODATA;
	CHECK(!mock.ops.create_ah(pd, &ah_attr) && errno == ENODATA);
	SAID("create_ah: there is no GID 77");
	mock.error = ETIMEDOUT;
	CHECK(!mock.ops.create_ah(pd, &ah_attr) && errno == ETIMEDOUT);
	SAID("create_ah: no way to the address of dgid from that of GID 77");
	mock.error = EAGAIN;
	CHECK(!mock.ops.create_ah(pd, &ah_attr) && errno == EAGAIN);
	SAID("rdma.max");
	mock.error = 0;
	CHECK(!mock.ops.dereg_mr((struct verbs_mr *)mr));

	ah = mock.ops.create_ah(pd, &ah_attr);
	CHECK(ah && ah->handle == 4 && !mock.ops.destroy_ah(ah));
	CHECK(mock.objects == 1);
	domains();
}
