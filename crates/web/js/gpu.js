// The device of WebGPU for the program: its objects by number, its work in the order in which it is given.

/** Opens a device. What is missing is an error that says so. */
export async function openGpu(fail) {
  const gpu = globalThis.navigator?.gpu;
  if (!gpu) {
    const why = globalThis.isSecureContext === false ? "pages get it over https or from localhost only" : "recent Chromium, Safari and Firefox have it";
    throw fail(`there is no WebGPU here (${why}); "wasm" computes everywhere`);
  }
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw fail(`this browser has WebGPU, but found no GPU that it can use; "wasm" computes everywhere`);
  // More than the least that every page gets, as far as there is more.
  const wanted = [
    "maxStorageBuffersPerShaderStage", "maxStorageBufferBindingSize", "maxBufferSize", "maxComputeWorkgroupStorageSize",
    "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX", "maxComputeWorkgroupsPerDimension",
  ];
  const requiredLimits = Object.fromEntries(wanted.map((k) => [k, adapter.limits[k]]).filter(([, v]) => v !== undefined));
  const device = await adapter.requestDevice({ requiredLimits });
  const info = adapter.info ?? {};
  const name = [info.vendor, info.architecture, info.device, info.description].filter(Boolean).join(" ") || "a GPU";
  const software = isSoftware(adapter, info, name);
  const limits = [...wanted, "minUniformBufferOffsetAlignment"].map((k) => device.limits[k]);
  return { device, name, software, limits: [...limits, software ? 1 : 0] };
}

/** Whether an adapter is a program on the CPU: it says so itself, but for browsers that don't tell; there its name does. */
export function isSoftware(adapter, info, name) {
  return info.isFallbackAdapter ?? adapter.isFallbackAdapter ?? /swiftshader|llvmpipe|lavapipe|softpipe|software|basic render/i.test(name);
}

/**
 * What the program asks of a device. `link` has `memory()`, `wasm()` (the program's exports `bytes`, `gpu_place`, `gpu_done`, `gpu_fault`)
 * and `told()`, which is called whenever something came back.
 */
export function gpuImports(link) {
  let gpu; // { device, name, limits }
  let next = 1;
  const buffers = new Map();
  const objects = new Map(); // pipelines and groups
  const layouts = new Map();
  let params; // { buffer, layout, group }: of all kernels of a submission
  let gone = []; // forgotten, but perhaps in what is being recorded
  const staging = new Map(); // buffers for reads, by size
  const offsets = new Uint32Array(1);
  const RECORD = 256;
  const PARAMS = 1 << 20;

  // Addresses beyond half of the memory come as negative numbers.
  const bytes = (at, n) => new Uint8Array(link.memory().buffer, at >>> 0, n);
  /** Makes a text the program's bytes. */
  const tell = (text) => {
    const data = new TextEncoder().encode(text);
    const at = link.wasm().bytes(data.byteLength);
    bytes(at, data.byteLength).set(data);
  };
  const done = (signal, error) => {
    if (error) tell(error.message ?? String(error));
    link.wasm().gpu_done(signal, error ? 0 : 1);
    link.told();
  };
  const fault = (text, lost) => {
    tell(text);
    link.wasm().gpu_fault(lost ? 1 : 0);
    link.told();
  };

  function layout(count, written) {
    const key = `${count} ${written}`;
    let found = layouts.get(key);
    if (!found) {
      const { device } = gpu;
      const entries = Array.from({ length: count }, (_, binding) => ({
        binding,
        visibility: GPUShaderStage.COMPUTE,
        buffer: { type: (written >>> binding) & 1 ? "storage" : "read-only-storage" },
      }));
      const group = device.createBindGroupLayout({ entries });
      found = { group, pipeline: device.createPipelineLayout({ bindGroupLayouts: [group, params.layout] }) };
      layouts.set(key, found);
    }
    return found;
  }

  /** A buffer to read from; those of common sizes are kept. */
  function stage(size) {
    const rounded = 2 ** Math.ceil(Math.log2(Math.max(size, 256)));
    const kept = staging.get(rounded)?.pop();
    return kept ?? gpu.device.createBuffer({ size: Math.min(rounded, gpu.device.limits.maxBufferSize), usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  }
  function unstage(buffer) {
    const all = staging.get(buffer.size) ?? [];
    staging.set(buffer.size, all);
    if (all.length < 4 && buffer.size <= 1 << 26) all.push(buffer);
    else buffer.destroy();
  }

  /** Takes a device that `openGpu` gave. */
  const attach = (opened) => {
    gpu = opened;
    const { device } = gpu;
    const visibility = GPUShaderStage.COMPUTE;
    const layout = device.createBindGroupLayout({ entries: [{ binding: 0, visibility, buffer: { type: "uniform", hasDynamicOffset: true, minBindingSize: RECORD } }] });
    const buffer = device.createBuffer({ size: PARAMS, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST });
    const group = device.createBindGroup({ layout, entries: [{ binding: 0, resource: { buffer, size: RECORD } }] });
    params = { buffer, layout, group };
    device.addEventListener("uncapturederror", (e) => {
      e.preventDefault?.();
      const memory = typeof GPUOutOfMemoryError !== "undefined" && e.error instanceof GPUOutOfMemoryError;
      fault(memory ? "the GPU has no more memory: smaller shapes or a smaller batch need less" : e.error.message, false);
    });
    device.lost.then((info) => fault(`${info.reason}: ${info.message}`, true));
  };

  const imports = {
    gpu_limits(to) {
      if (!gpu) return 0;
      new Float64Array(link.memory().buffer, to >>> 0, 9).set(gpu.limits);
      return 1;
    },
    gpu_name(to, most) {
      return new TextEncoder().encodeInto(gpu.name, bytes(to, most)).written;
    },
    gpu_buffer(size) {
      const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
      buffers.set(next, gpu.device.createBuffer({ size: size >>> 0, usage }));
      return next++;
    },
    gpu_free(id) {
      buffers.get(id)?.destroy();
      buffers.delete(id);
    },
    gpu_pipeline(at, n, count, written) {
      const code = new TextDecoder().decode(bytes(at, n).slice());
      const module = gpu.device.createShaderModule({ code });
      objects.set(next, gpu.device.createComputePipeline({ layout: layout(count, written).pipeline, compute: { module, entryPoint: "main" } }));
      return next++;
    },
    gpu_forget(id) {
      gone.push(id);
    },
    gpu_group(count, written, at) {
      const words = new Uint32Array(link.memory().buffer, at >>> 0, 3 * count);
      const entries = Array.from({ length: count }, (_, i) => ({
        binding: i,
        resource: { buffer: buffers.get(words[3 * i]), offset: words[3 * i + 1], size: words[3 * i + 2] || undefined },
      }));
      objects.set(next, gpu.device.createBindGroup({ layout: layout(count, written).group, entries }));
      return next++;
    },
    gpu_submit(at, count, paramsAt, paramsBytes) {
      const { device } = gpu;
      const words = new Uint32Array(link.memory().buffer, at >>> 0, count);
      if (paramsBytes > 0) device.queue.writeBuffer(params.buffer, 0, link.memory().buffer, paramsAt >>> 0, paramsBytes);
      const encoder = device.createCommandEncoder();
      let pass = null;
      for (let i = 0; i < count; ) {
        if (words[i] === 0) {
          pass ??= encoder.beginComputePass();
          pass.setPipeline(objects.get(words[i + 1]));
          pass.setBindGroup(0, objects.get(words[i + 2]));
          offsets[0] = words[i + 3];
          pass.setBindGroup(1, params.group, offsets, 0, 1);
          pass.dispatchWorkgroups(words[i + 4], words[i + 5], words[i + 6]);
          i += 7;
        } else {
          pass?.end();
          pass = null;
          encoder.copyBufferToBuffer(buffers.get(words[i + 1]), words[i + 2], buffers.get(words[i + 3]), words[i + 4], words[i + 5]);
          i += 6;
        }
      }
      pass?.end();
      device.queue.submit([encoder.finish()]);
      gone.forEach((id) => objects.delete(id));
      gone = [];
    },
    gpu_write(id, offset, at, n) {
      gpu.device.queue.writeBuffer(buffers.get(id), offset, link.memory().buffer, at >>> 0, n);
    },
    gpu_read(id, offset, n, signal) {
      const staged = stage(n);
      const encoder = gpu.device.createCommandEncoder();
      encoder.copyBufferToBuffer(buffers.get(id), offset, staged, 0, n);
      gpu.device.queue.submit([encoder.finish()]);
      staged.mapAsync(GPUMapMode.READ, 0, n).then(
        () => {
          const to = link.wasm().gpu_place(signal, n);
          if (to !== 0) bytes(to, n).set(new Uint8Array(staged.getMappedRange(0, n)));
          staged.unmap();
          unstage(staged);
          done(signal);
        },
        (e) => done(signal, e),
      );
    },
    gpu_fence(signal) {
      gpu.device.queue.onSubmittedWorkDone().then(() => done(signal), (e) => done(signal, e));
    },
    gpu_wait: () => 0,
  };
  return { imports, attach, opened: () => gpu };
}
